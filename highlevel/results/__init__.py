"""Steps from final windows to result rows: HAVING, the select list, holistic aggregates, sketches."""
