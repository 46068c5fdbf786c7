"""`tune`: find options, calibration and FP16 layers of least time with a metric within a budget.

`points` defines the choices, `bench` makes a network and a cost of them, `meter` measures it, `search` chooses,
`journal` stores measurements, `outcome` is the result.
"""
