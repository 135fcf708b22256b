"""Learning across machines: the protocols of `learn`, with every party elsewhere and a server that only carries bytes.

`identity` (who a party is; letters that only one can read), `members` (who takes part).
"""
