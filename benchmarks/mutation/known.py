"""Faults that no test noticed once; each a piece of text that a file holds exactly once, and what it becomes."""

KNOWN = (
    ("common/funcs.py", "counted = samples[valid]", "counted = samples.ravel()",
     "valid dropped from the standardisation"),
    ("ppo/batch.py", "statistics.merged(advantages[valid])", "statistics.merged(advantages.ravel())",
     "valid dropped from the running standardisation"),
    ("ppo/batch.py", "funcs.explained_variance(values[:-1][valid], targets[valid])",
     "funcs.explained_variance(values[:-1].ravel(), targets.ravel())", "valid dropped from explained variance"),
    ("common/runs/session.py", "trainer.live.watch(folder)", "pass", "the live file is not watched"),
    ("Agent.py", "table[-per_pass:].mean(axis=0)", "table[:per_pass].mean(axis=0)",
     "metrics of the last pass taken from the first"),
    ("Agent.py", "gradients, self.config.max_gradient_norm, use_norm=norm",
     "gradients, 2 * self.config.max_gradient_norm, use_norm=norm", "gradients clipped at another norm"),
    ("Agent.py", "tf.where(i % per_pass == 0, 0.0, kl)", "kl", "the KL of a pass is not reset"),
    ("common/learning/trainer_base.py", 'for name in ("epoch", "steps", "skipped"))',
     'for name in ("epoch", "steps", "epoch"))', "the count of skipped updates is not restored"),
    ("common/rollout/repeatable.py", 'self._faults = int(state["faults"])', "self._faults = 0",
     "the count of failed environments is not restored"),
    ("common/files.py", "os.fsync(descriptor)", "pass", "nothing is flushed to the disk"),
)  # fmt: skip
