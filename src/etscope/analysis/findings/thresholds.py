"""From when on something is a finding. A sound, steady model should pass all of these."""

from __future__ import annotations

# -- Shares of the method's time (0.05: 5 %). Less is not worth a line on the first page.

NAMED_SHARE = 0.02  # of the slowest module, operator or line: below, nothing stands out
ISLANDS_SHARE = 0.05  # of the operators outside of delegates
LAYOUT_SHARE = 0.05  # of changes of layout and type: a few % are normal with any delegate
FRAMEWORK_SHARE = 0.10  # of what no instruction accounts for: tracing alone costs some %
REST_SHARE = 0.10  # of what a delegate's events leave over: packing and threads cost some %
OUTLIER_SHARE = 0.02  # of an average that one run makes
BESIDE_SHARE = 0.10  # of what a token takes beside the runtime: its choice alone costs some %

# -- Steadiness.

# A first run this much longer than the median of the others is one by itself: caches and memory
# are filled. Less is within what runs of a phone vary by.
FIRST_RUN_RATIO = 1.5
FIRST_RUN_LEAST_US = 20.0  # a shorter first run is long by caches alone
FIRST_RUN_FEWEST = 3  # runs: of two, either may be the odd one
# A drift must be this large between the halves, and be sure to this confidence: one report in a
# thousand may say it falsely.
DRIFT_EFFECT = 0.05
DRIFT_CONFIDENCE = 0.999
DRIFT_FEWEST = 20  # runs: a half needs ten to be compared
# Two speeds: each has this share of the runs and this number of them, they are this far apart, and
# the gap between them is this part of the distance of their means. Samples of one normal, uniform
# or log-normal distribution have such a gap in fewer than one of a thousand sets.
MODE_SHARE = 0.2
MODE_FEWEST = 5
MODE_DISTANCE = 0.10
MODE_GAP = 0.6
# Slow runs that lift the average this far above the median make averages a poor summary.
SLOW_RUNS_LIFT = 0.10
SLOW_RUN_RATIO = 1.5
SLOW_RUN_FEWEST = 5  # runs: of fewer, the median says little
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
