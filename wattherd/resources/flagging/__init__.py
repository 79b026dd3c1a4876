"""A server's options and the one binary that will get them: what it knows, how it spells them, what it says when it tries them.

Nothing here decides by a build's number: `manual` reads the binary's own help, `translate` speaks its spelling, `trial` lets it parse.
"""
