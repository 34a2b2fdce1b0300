"""Under which names an attempt's metadata and a step's metrics keep what its reward said of itself."""

#: Of an attempt's metadata: one sentence on why its reward is what it is.
REASON = "reward_reason"
#: Begins the names of a step's metrics that are means of one part of the reward.
PART_METRIC = "reward/part/"
#: Stands in a reason where the attempt touched what decides its verdict.
REFUSED = "refused: "
