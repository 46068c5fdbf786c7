"""`tune`: which options, calibration and FP16 layers cost least time and keep a metric within a budget.

`points` is what can be chosen, `bench` makes a network and a cost of it, `meter` measures it, `search` chooses, `journal`
remembers, `outcome` is what comes out.
"""
