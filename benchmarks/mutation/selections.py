"""Which tests should notice a fault of which file: groups, of which the quick ones come first."""

API = "tests/programs/test_api.py"
BATCH = "tests/ppo/test_batch.py"
CLI = "tests/runs/test_command_line.py"
CHECKPOINT = "tests/runs/test_checkpoint.py"
COLLECTOR = "tests/rollout/test_collector.py"
DISKS = "tests/runs/test_disks_and_terminals.py"
AGENTS = "tests/programs/test_agents.py"
ENVIRONMENT = "tests/envs/test_environment.py"
EVALUATION = "tests/rollout/test_evaluation.py"
DASHBOARD = "tests/programs/test_dashboard.py"
EXPORT = "tests/programs/test_export.py"
FAULTS = "tests/rollout/test_faults.py"
FIGURES = "tests/figures/test_figures.py"
FILM = "tests/runs/test_film.py"
FINISHED = "tests/runs/test_finished.py"
FUNCS = "tests/test_funcs.py"
HOSTILE = "tests/runs/test_hostile_folders.py"
LIVE = "tests/ppo/test_live_settings.py"
LOSSES = "tests/ppo/test_losses.py"
IMAGES_AND_NUMBERS = "tests/nets/test_images_and_numbers.py"
KERAS_MODELS = "tests/nets/test_keras_models.py"
MIRRORED = "tests/nets/test_mirrored.py"
MEMORY = "tests/ppo/test_memory.py"
NETWORK = "tests/nets/test_network.py"
OWN_NETWORKS = "tests/nets/test_own_networks.py"
LESSONS = "tests/programs/test_notebook_lessons.py"
NOTEBOOK = "tests/programs/test_notebook.py -k 'not from_top_to_bottom'"
OFF_POLICY = (
    "tests/companions/test_off_policy.py -k 'by_hand or transitions_target or smoothing or compiled_update or delay "
    "or targets_move or diverges_says or frozen or noise_of or remembered or timeout or updates_come or warming "
    "or number_of or exploration_falls or settings_are or wrong_settings or presets "
    "or plain_gradient or layer_normalisation'"
)
OFF_POLICY_LONG = (
    "tests/companions/test_off_policy.py -k 'many_updates or actor_learns or all_three or waits_for_its_cycle "
    "or resumed_run or in_parts or undone'"
)
COMPANIONS = (OFF_POLICY, "tests/companions/test_normalization.py", OFF_POLICY_LONG)
SAC = ("tests/companions/test_sac.py -k 'not learned'", "tests/companions/test_sac.py -k learned")
OWN = "tests/envs/test_own_environment.py"
POLICIES = "tests/rollout/test_policies.py"
PROGRAMS = "tests/programs/test_programs.py"
REACH = "tests/rollout/test_reach.py"
RECURRENT = "tests/nets/test_recurrent.py"
REPEATABLE = "tests/rollout/test_repeatable.py"
RESUME = "tests/runs/test_resume.py"
ROUNDED = "tests/nets/test_rounded_products.py"
SESSION = "tests/runs/test_session.py"
SLOW = "tests/runs/test_slow_environments.py"
SPACES = "tests/envs/test_spaces.py"
SHIP = "tests/programs/test_ship.py"
SHARDS = "tests/rollout/test_shards.py"
TORSO = "tests/ppo/test_shared_torso.py"
TRAINING = (
    "tests/ppo/test_training.py -k 'ratio or own_rows or every_sample or timeouts or discount or divided or shifted "
    "or first_update_sees or statistics_rest or metric or keys_of or rate or best or nan or run_on or goes_on "
    "or clip_range'"
)
TUNE = "tests/programs/test_tune.py"
COLOR = "tests/ppo/test_training.py -k color"
UPDATE = "tests/ppo/test_update.py"
STOP = "tests/runs/test_stop_score.py"
VALIDATION = "tests/ppo/test_training.py -k validation"
START_FROM = "tests/learning/test_start_from.py"
IMAGES = "tests/companions/test_image_replay.py"
MASKS = "tests/ppo/test_action_masks.py"
WEIGHTS = "tests/ppo/test_training.py -k 'best or weights or saved or saving'"
WINDOW = "tests/runs/test_window.py"
WORKERS = "tests/rollout/test_workers.py"

SELECTIONS: dict[str, tuple[str, ...]] = {
    "Agent.py": (UPDATE, TORSO, TRAINING, "tests/ppo/test_discrete.py"),
    "PPOAgentTrainer.py": ("tests/ppo/test_results.py", LIVE, COLOR, FAULTS, TRAINING, SESSION, RESUME),
    "common/__init__.py": ("tests/learning/test_device.py",),
    "common/arrays_file.py": (CHECKPOINT, HOSTILE, WEIGHTS),
    "common/config.py": ("tests/test_settings.py", "tests/rollout/test_costs.py", CLI, OWN),
    "common/env_wrappers.py": ("tests/test_env_wrappers.py",),
    "common/envs/ale_group.py": ("tests/envs/test_atari.py",),
    "common/envs/atari.py": ("tests/envs/test_atari.py",),
    "common/envs/environment.py": ("tests/envs/test_environment.py", OWN, SPACES),
    "common/envs/environment_check.py": (OWN,),
    "common/envs/action_masks.py": (MASKS,),
    "common/envs/action_repeat.py": ("tests/envs/test_action_repeat.py", OWN),
    "common/envs/envpool_group.py": (
        "tests/envs/test_action_repeat.py",
        COLLECTOR,
        REPEATABLE,
        VALIDATION,
        RESUME,
    ),
    "common/envs/groups.py": (COLLECTOR, FAULTS),
    "common/envs/image_rows.py": (SPACES, IMAGES_AND_NUMBERS),
    "common/envs/gymnasium_group.py": (COLLECTOR, FAULTS),
    "common/envs/logged_info.py": ("tests/rollout/test_log_info.py",),
    "common/envs/make_env.py": (SPACES, OWN),
    "common/envs/known_mirrors.py": ("tests/envs/test_mirrors.py",),
    "common/envs/mirror_check.py": ("tests/envs/test_mirror_check.py",),
    "common/envs/mirror_settings.py": ("tests/envs/test_mirrors.py",),
    "common/envs/mirrors.py": ("tests/envs/test_mirrors.py", MIRRORED),
    "common/envs/process_group.py": (FAULTS, OWN),
    "common/envs/registered.py": (OWN,),
    "common/envs/seeded_episodes.py": (REPEATABLE, COLLECTOR, RESUME),
    "common/envs/spaces.py": (SPACES, OWN),
    "common/envs/stored_spaces.py": (API,),
    "common/envs/supported_spaces.py": (SPACES, IMAGES_AND_NUMBERS, OWN),
    "common/envs/vector_env.py": (
        ENVIRONMENT,
        COLLECTOR,
        REPEATABLE,
        SPACES,
        "tests/rollout/test_log_info.py",
        "tests/envs/test_atari.py",
        OWN,
    ),
    "common/envs/worker_processes.py": ("tests/envs/test_worker_processes.py", FAULTS),
    "common/errors.py": (CLI,),
    "common/figures/curves.py": (FIGURES,),
    "common/figures/five_panels.py": (FIGURES,),
    "common/figures/importances.py": (FIGURES, TUNE),
    "common/figures/kinds.py": (FIGURES, CLI),
    "common/figures/policy_view.py": (FIGURES, FILM),
    "common/figures/study_figure.py": ("tests/figures/test_study_figure.py",),
    "common/figures/style.py": (FIGURES, "tests/figures/test_study_figure.py"),
    "common/files.py": (CHECKPOINT, DISKS, HOSTILE),
    "common/funcs.py": (FUNCS,),
    "common/hidden_speeds.py": ("tests/test_env_wrappers.py",),
    "common/learning/agent_base.py": (WEIGHTS, "tests/companions/test_normalization.py", TRAINING, START_FROM),
    "common/learning/compiled.py": ("tests/learning/test_compiled.py", TORSO),
    "common/learning/device.py": ("tests/learning/test_device.py",),
    "common/learning/quiet_start.py": ("tests/learning/test_device.py", "tests/runs/test_start.py"),
    "common/learning/scoring.py": ("tests/learning/test_weight_average.py", STOP, VALIDATION),
    "common/nets/distributions.py": ("tests/nets/test_distributions.py",),
    "common/nets/flat_networks.py": (NETWORK, *COMPANIONS, *SAC, ROUNDED),
    "common/nets/from_keras.py": (NETWORK, IMAGES_AND_NUMBERS, POLICIES),
    "common/nets/keras_models.py": (KERAS_MODELS, NETWORK, TORSO, OFF_POLICY, *SAC),
    "common/nets/kernels.py": (KERAS_MODELS,),
    "common/nets/batch_normalization.py": (NETWORK, *SAC),
    "common/nets/batch_renormalization.py": ("tests/nets/test_batch_renormalization.py",),
    "common/nets/keras_layers.py": (MIRRORED, NETWORK),
    "common/nets/memory_layer.py": (RECURRENT, MEMORY),
    "common/nets/recurrent.py": (RECURRENT, "tests/rollout/test_policy_file.py", EXPORT),
    "common/nets/network.py": (NETWORK, POLICIES, MIRRORED),
    "common/nets/own_networks.py": (OWN_NETWORKS,),
    "common/nets/rounded_products.py": (ROUNDED,),
    "common/nets/tensorflow_operations.py": (NETWORK, OFF_POLICY, ROUNDED, EXPORT),
    "common/learning/start_from.py": (START_FROM,),
    "common/learning/trainer_base.py": (LIVE, STOP, FAULTS, TRAINING, OWN),
    "common/progress.py": (SLOW,),
    "common/records.py": (FUNCS, OFF_POLICY),
    "common/results.py": (FUNCS, FIGURES, TRAINING),
    "common/rollout/collector.py": (COLLECTOR, "tests/rollout/test_costs.py", FAULTS, SHARDS, TRAINING, RESUME),
    "common/rollout/evaluation.py": (EVALUATION,),
    "common/rollout/not_finite.py": (COLLECTOR, FAULTS),
    "common/rollout/playing.py": (EVALUATION, VALIDATION, REACH, FILM, WINDOW),
    "common/rollout/policies.py": (POLICIES, SHARDS, "tests/ppo/test_discrete.py", MIRRORED, SAC[0]),
    "common/rollout/policy_file.py": ("tests/rollout/test_policy_file.py", AGENTS),
    "common/rollout/probe.py": (REPEATABLE,),
    "common/rollout/repeatable.py": (COLLECTOR, FAULTS, RESUME),
    "common/rollout/rewards.py": (
        "tests/rollout/test_costs.py",
        FUNCS,
        "tests/envs/test_failed_steps.py",
        TRAINING,
    ),
    "common/rollout/stepping.py": (COLLECTOR, SHARDS, FAULTS, RESUME),
    "common/rollout/validation.py": (VALIDATION, STOP, REACH),
    "common/rollout/workers/cluster.py": (WORKERS,),
    "common/rollout/workers/envs.py": (SHARDS, WORKERS),
    "common/rollout/workers/shard.py": (SHARDS, WORKERS),
    "common/rollout/workers/team.py": (WORKERS,),
    "common/runs/after_training.py": (FINISHED, CLI),
    "common/runs/board.py": (DISKS, CLI),
    "common/runs/checkpoint.py": (CHECKPOINT,),
    "common/runs/command_line.py": ("tests/runs/test_start.py", CLI),
    "common/runs/film.py": (FILM, OWN),
    "common/runs/finished.py": (FINISHED,),
    "common/runs/one_process.py": (DISKS, HOSTILE),
    "common/runs/options.py": ("tests/runs/test_platforms.py", CLI),
    "common/runs/recorder.py": (SLOW, SESSION, FINISHED, DISKS, FIGURES, CLI),
    "common/runs/terminal.py": (DISKS, SESSION, SLOW, CLI),
    "common/runs/run_folder.py": (HOSTILE, CLI),
    "common/runs/fit.py": (SLOW,),
    "common/runs/session.py": (LIVE, STOP, SESSION, FINISHED, HOSTILE, RESUME),
    "common/runs/signals.py": (SESSION, DISKS),
    "common/runs/side_by_side.py": ("tests/runs/test_side_by_side.py",),
    "common/runs/trust.py": (HOSTILE, CLI),
    "common/runs/window.py": (WINDOW, AGENTS),
    "common/runs/arguments.py": (CLI, "tests/programs/test_programs.py"),
    "common/settings.py": ("tests/test_settings.py", CLI),
    "common/state.py": (CHECKPOINT, HOSTILE),
    "common/user_code.py": (OWN,),
    "companions/DDPGAgent.py": ("tests/learning/test_device.py", *COMPANIONS),
    "companions/OffPolicyAgentTrainer.py": COMPANIONS,
    "companions/SACAgent.py": SAC,
    "companions/SACAgentTrainer.py": SAC,
    "companions/TQCAgent.py": SAC,
    "companions/CrossQAgent.py": SAC,
    "companions/config.py": ("tests/companions/test_n_step.py", *COMPANIONS, *SAC),
    "companions/exploration.py": COMPANIONS,
    "companions/image_replay.py": (IMAGES, "tests/companions/test_images_alone.py"),
    "companions/losses.py": COMPANIONS,
    "companions/n_step.py": ("tests/companions/test_n_step.py",),
    "companions/packed_minibatch.py": (IMAGES, "tests/companions/test_images_alone.py"),
    "companions/presets.py": ("tests/test_pages.py", *COMPANIONS),
    "companions/quantiles.py": SAC,
    "companions/replay.py": ("tests/companions/test_replay.py", "tests/companions/test_off_policy.py -k wait", IMAGES),
    "companions/results.py": (*COMPANIONS, *SAC),
    "companions/sac_presets.py": ("tests/test_pages.py", *SAC),
    "companions/squashed_normal.py": SAC,
    "ppo/architecture.py": (KERAS_MODELS, TORSO, "tests/ppo/test_images.py"),
    "ppo/batch.py": (BATCH, "tests/ppo/test_earlier.py", TRAINING),
    "ppo/config.py": ("tests/test_settings.py", MASKS, MEMORY, CLI, TORSO, TRAINING),
    "ppo/live_settings.py": (LIVE, "tests/ppo/test_learning_rate.py"),
    "ppo/losses.py": (LOSSES, "tests/ppo/test_discrete.py"),
    "ppo/presets.py": (CLI, NOTEBOOK),
    "ppo/sequences.py": (MEMORY,),
    "ppo/results.py": (FAULTS,),
    "ppo/sliders.py": (DASHBOARD,),
    "programs/__main__.py": (PROGRAMS, "tests/test_pages.py", "tests/runs/test_start.py"),
    "programs/dashboard.py": (DASHBOARD, PROGRAMS),
    "programs/evaluate.py": (PROGRAMS, CLI, EXPORT, FINISHED),
    "programs/export.py": (EXPORT, PROGRAMS),
    "programs/methods.py": (EXPORT, CLI),
    "programs/notebook/__init__.py": (NOTEBOOK, LESSONS),
    "programs/notebook/display.py": (LESSONS, NOTEBOOK),
    "programs/notebook/figures.py": (LESSONS,),
    "programs/notebook/films.py": (LESSONS, NOTEBOOK),
    "programs/notebook/lessons.py": (LESSONS,),
    "programs/notebook/sliders.py": (DASHBOARD,),
    "programs/preset_files.py": (TUNE,),
    "programs/plot.py": (FIGURES, CLI),
    "programs/policy_files.py": (EXPORT,),
    "programs/resume.py": (PROGRAMS,),
    "programs/run_arguments.py": (PROGRAMS, CLI),
    "programs/run_page.py": (DASHBOARD,),
    "programs/run_state.py": (DASHBOARD,),
    "programs/ship.py": (SHIP,),
    "programs/api.py": (API,),
    "programs/shipped.py": (AGENTS, SHIP),
    "programs/study.py": (PROGRAMS, "tests/programs/test_study_file.py", "tests/test_pages.py"),
    "programs/train.py": (PROGRAMS, CLI),
    "programs/tune.py": (TUNE,),
    "programs/onnx_files.py": (EXPORT, NETWORK),
    "programs/worker_pool.py": (TUNE, PROGRAMS, "tests/programs/test_study_runs.py"),
    "programs/study_runs.py": (PROGRAMS, "tests/programs/test_study_runs.py"),
    "programs/tuning/journal.py": (TUNE,),
    "programs/tuning/search.py": (TUNE,),
    "programs/tuning/space.py": (TUNE,),
    "programs/tuning/trial.py": (TUNE,),
    "programs/watch.py": (AGENTS, PROGRAMS, CLI, "tests/runs/test_start.py"),
}
