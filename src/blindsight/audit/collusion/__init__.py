"""What parties learn when they put together what each of them holds: coalitions in rounds of learning, apps with sifts.

Every attack here is a computation on the messages that the members of a coalition really received and the secrets they
really had, never on anybody else's (`played.Coalition`). Most succeed, as the statements of the schemes admit; the use
of running them is to see that they reach so far and no further.
"""
