"""Every threshold of the verdict. docs/verdict.md has a table of them, which is made from `TABLE`."""

from __future__ import annotations

FALSE_ALARM = 0.00135
"""Probability that a correct translation is called suspicious by one comparison: three standard errors."""
MEASURED_RUNS, REALIZATIONS = 32, 4
"""Runs of the network on which the expected rounding is measured, and how often on each, with other steps."""
SPREAD = 0.5
"""Standard deviations of the logarithm of the expected noise that are added to the noisiest realization."""
EQUAL_DB, SAME_DB, SAME_HALF_DB = 80.0, 40.0, 35.0
"""Least SQNR of two networks that compute the same function: in float32; in float32 if weights of -128 steps became
-127; if one of them computes in float16."""
LAST_BIT_DB = 20.0
"""Another order of summation may cost this many dB more than a change in the last bit of every weight does. The
function of a network that amplifies its rounding (values that grow from layer to layer) is not defined more
precisely."""
HARMLESS_DB = 45.0
"""SQNR of a single rounding to INT8. An output that is no worse is never suspicious."""
USABLE_DB, LOST_DB, UNSTABLE_DB = 6.0, 3.0, 12.0
"""An output with a lower SQNR is suspicious, and broken, regardless of the expectation. For an output that the model's
own quantizers change more than the third, the second counts alone; for one that they change more than the first,
none."""
CHANGED, MOST_CHANGED, LEAST_CHANGED = 0.1, 0.5, 3
"""Share of clear decisions that change: more is suspicious, unless rounding alone changes half as many; more is broken,
regardless of the expectation. Fewer changed decisions than the last are chance."""
KEPT = 0.02
"""An output whose clear decisions change no more than this is judged as a whole: its slices, the classes, decide
nothing."""
METRIC_DROP, METRIC_LOST, METRIC_USUAL = 0.01, 0.1, 1.5
"""Loss of the metric as a share of its value, beyond one standard error: more is suspicious, and broken. Suspicious
only if it is more than this multiple of what rounding alone costs."""
INFERRED, CALIBRATED_LEAST, CALIBRATED_MOST = 4.0, 0.8, 1.3
"""Steps that are expected, as multiples of the best one: the largest of a rule that infers upper bounds without data
(S7, S8, S11), and the smallest and the largest of a calibration, whose data are others."""
SAME_SCALE = 1e-3
"""Relative difference of two scales that count as equal: float16 has 11 bits."""

TABLE = (
    (
        "the network in float is another function",
        f"below {EQUAL_DB:g} dB ({SAME_DB:g} dB with weights of -128)",
    ),
    (
        "an output or slice differs more than rounding",
        f"chance {FALSE_ALARM:.3%} a comparison, and below {HARMLESS_DB:g} dB",
    ),
    ("an output is suspicious, whatever was expected", f"below {USABLE_DB:g} dB"),
    ("an output is broken, whatever was expected", f"below {LOST_DB:g} dB"),
    ("clear decisions change: suspicious", f"{CHANGED:.0%}, at least {LEAST_CHANGED}, twice as many as by rounding"),
    ("clear decisions change: broken", f"more than {MOST_CHANGED:.0%}"),
    (
        "the metric falls: suspicious",
        f"{METRIC_DROP:.0%}, {METRIC_USUAL:g} times what rounding costs (or `--max_drop`)",
    ),
    ("the metric falls: broken", f"{METRIC_LOST:.0%} of its value"),
)
"""Finding -> threshold, in words."""
