"""Sums under lattice encryption (BFV): users encrypt vectors, the aggregator adds, the key generator reads the sum.

*The guarantee.* If aggregator and key generator do not collude and follow the protocol, the aggregator sees ciphertexts
and the sum, the key generator sees sums of at least `SumTerms.minimum` users that signed their part, one a round. It
rests on ring-LWE (`crypto.bfv`): no known quantum computer breaks it. Vectors are dense: there are no indices to hide.
"""
