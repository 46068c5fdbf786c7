"""One search for lost accuracy: options, calibration and FP16 layers with the least time and a metric within a budget,
for `tune`, `translate --recover` and `deploy`.

`points` defines the choices, `bench` makes a network and a cost of them, `meter` measures it, `search` chooses,
`journal` stores measurements, `run` is the function of the commands.
"""
