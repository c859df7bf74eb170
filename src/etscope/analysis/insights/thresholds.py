"""From when on something is a finding. A sound, steady model should pass all of these."""

from __future__ import annotations

# -- Shares of the method's time (0.05: 5 %). Less is not worth a line on the first page.

NAMED_SHARE = 0.02  # of the slowest module, operator or line: below, nothing stands out
ISLANDS_SHARE = 0.05  # of the operators outside of delegates
LAYOUT_SHARE = 0.05  # of changes of layout and type: a few % are normal with any delegate
FRAMEWORK_SHARE = 0.10  # of what no instruction accounts for: tracing alone costs some %
REST_SHARE = 0.10  # of what a delegate's events leave over: packing and threads cost some %
OUTLIER_SHARE = 0.02  # of an average that one run makes
BESIDE_SHARE = 0.10  # of a token's time outside of the runtime: choosing it alone costs some %

# -- Steadiness: what makes runs slow or differ is in `etscope.analysis.profile.counted`.

FIRST_RUN_LEAST_US = 20.0  # a shorter first run is long by caches alone
# Slow runs that lift the average this far above the median make averages a poor summary.
SLOW_RUNS_LIFT = 0.10
# Where other programs disturb so many of the runs, they make the others longer, too.
BUSY_SHARE = 0.25
# Averages of so many runs are as good as more runs make them.
ENOUGH_RUNS = 100
# An average that would be less than half without its longest run, as the page marks it (▲).
OUTLIER_DROP = 0.5
OUTLIER_FEWEST = 3  # runs

# -- Clocks.

COARSE_STEP_NS = 1000  # a clock of whole microseconds
# An event of fewer steps than this is known to a fifth at best.
COARSE_STEPS = 5
COARSE_SHARE = 0.10  # of the time in such events and in the rest that they leave

# -- Memory.

LARGEST_TENSOR_SHARE = 0.10  # of the peak
MODULE_WEIGHTS_SHARE = 0.10  # of the weights
DUPLICATES_SHARE = 0.01  # of the constants
DUPLICATES_BYTES = 1024  # tiny constants are repeated everywhere
