"""Which options serve a model fastest on this machine and on a user's prompts, under a promise and a time budget.

The space is searched in the order in which options matter: first who drafts (`candidates.structures`), then how long
drafts are (`lengths`), then threads and the limits of a batch (`limits`), each by successive halving over what was best
before. So the trials add up rather than multiply. What is left is measured again beside plain decoding, and only those
fresh turns decide whether it is recommended.
"""
