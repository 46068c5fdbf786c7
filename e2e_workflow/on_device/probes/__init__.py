"""Small networks whose outputs on a board settle an open hypothesis."""
