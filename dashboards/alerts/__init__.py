"""Alerts: rules over the windows of queries, and messages to receivers.

rows of closed windows ──► conditions ──► states of groups ──► store (SQLite) ──► delivery ──► receivers
"""
