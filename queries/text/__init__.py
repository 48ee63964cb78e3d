"""Query text to a syntax tree: lexer, tree, parser, literals and the error that names a position in the text."""
