"""`tune`: options, calibration and FP16 layers with the least time and a metric within a budget.

`points` defines the choices, `bench` makes a network and a cost of them, `meter` measures it, `search` chooses,
`journal` stores measurements, `outcome` is the result.
"""
