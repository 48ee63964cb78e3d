"""Rules of other systems as queries: EQL, and correlations of Sigma."""
