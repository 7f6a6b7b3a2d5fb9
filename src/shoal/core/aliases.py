"""Aliases: names that other libraries and papers use, and what they are here."""

from __future__ import annotations

from collections.abc import Iterable

# What other libraries and papers call it, and what it may be here.
ALIASES = {
    "lr": ("learning_rate", "policy_learning_rate", "critic_learning_rate"),
    "alpha": ("initial_temperature", "learning_rate"),
    "learning_rate": ("policy_learning_rate", "critic_learning_rate"),
    **dict.fromkeys(("gamma", "discount_factor"), ("discount",)),
    **dict.fromkeys(("lambda", "lam", "tau_gae"), ("gae_lambda",)),
    **dict.fromkeys(("clip", "clip_coef", "clip_eps", "e_clip"), ("clip_range",)),
    **dict.fromkeys(("anneal_lr", "lr_schedule", "lr_decay"), ("learning_rate_end_factor",)),
    **dict.fromkeys(("clip_range_vf", "clip_vloss"), ("clip_value_loss",)),
    **dict.fromkeys(("ent_coef", "entropy_coef", "entropy_coeff"), ("entropy_coefficient", "initial_temperature")),
    "target_entropy": ("target_entropy_scale",),
    **dict.fromkeys(("vf_coef", "value_coef", "critic_coef"), ("value_coefficient",)),
    **dict.fromkeys(("max_grad_norm", "grad_norm"), ("max_gradient_norm",)),
    **dict.fromkeys(("n_epochs", "num_epochs", "update_epochs", "mini_epochs"), ("epochs",)),
    **dict.fromkeys(("n_envs", "environments", "num_actors"), ("num_envs",)),
    **dict.fromkeys(
        ("n_steps", "num_steps", "horizon", "horizon_length", "train_freq", "rollout"), ("rollout_length",)
    ),
    **dict.fromkeys(("gradient_steps", "utd_ratio"), ("update_ratio", "max_update_ratio")),
    "exploration_fraction": ("epsilon_decay_updates",),
    "exploration_final_eps": ("final_epsilon",),
    "target_network_frequency": ("target_update_interval",),
    "noise_std": ("exploration_noise",),
    "target_policy_noise": ("target_noise",),
    "target_noise_clip": ("noise_clip",),
    **dict.fromkeys(("normalize", "norm_obs"), ("normalize_observations", "normalize_rewards")),
    "norm_reward": ("normalize_rewards",),
    "policy_kwargs": ("layers", "activation", "log_std_init", "share_features_extractor"),
    **dict.fromkeys(("recurrent", "lstm_size", "rnn_hidden_dim"), ("lstm_hidden_size",)),
    **dict.fromkeys(("n_minibatches", "minibatches"), ("num_minibatches",)),
    "num_minibatches": ("batch_size",),
    **dict.fromkeys(("batch", "batch_size", "minibatch_size"), ("batch_size", "num_minibatches")),
    **dict.fromkeys(("capacity", "memory_size", "replay_size"), ("buffer_size",)),
    **dict.fromkeys(("warm_up", "start_steps"), ("learning_starts",)),
    **dict.fromkeys(("net_arch", "hidden_sizes", "hidden_layers", "units"), ("layers",)),
    **dict.fromkeys(("total_timesteps", "n_timesteps", "total_steps", "max_steps", "timesteps"), ("budget",)),
    **dict.fromkeys(("pop_size", "population_size", "num_policies", "num_samples"), ("population",)),
    **dict.fromkeys(("perturbation_interval", "ready_interval", "interval_steps"), ("interval",)),
    **dict.fromkeys(("hyperparam_mutations", "hyperparam_bounds", "search_space"), ("space",)),
    "quantile_fraction": ("bottom", "top"),
    "perturbation_factors": ("factors",),
    "burn_in_period": ("burn_in",),
    "custom_explore_fn": ("explore",),
    **dict.fromkeys(("env_id", "env_name", "environment", "task"), ("env",)),
    **dict.fromkeys(("algo", "algorithm"), ("agent",)),
    **dict.fromkeys(("early_stopping", "early_stop"), ("stop",)),
    **dict.fromkeys(("asha", "sha", "hyperband"), ("successive_halving",)),
    **dict.fromkeys(("random", "random_search"), ("independent",)),
}
# What other libraries have and Shoal's own agents lack, and what to take instead.
NOT_HERE = {
    **dict.fromkeys(
        ("use_sde", "sde_sample_freq", "use_sde_at_warmup"),
        "Shoal's agents have no state-dependent exploration (gSDE): take agent sb3:PPO or sb3:SAC, which have it",
    ),
    **dict.fromkeys(
        ("noise_type", "action_noise", "ou_noise"),
        "td3 explores with Gaussian noise, hyper.exploration_noise: for Ornstein-Uhlenbeck noise take agent sb3:TD3",
    ),
    **dict.fromkeys(
        ("anneal_lr", "lr_schedule", "lr_decay", "learning_rate_schedule", "use_linear_lr_decay"),
        "for a linear decay of learning_rate to 0 write hyper.learning_rate_end_factor: 0",
    ),
    "target_kl": "Shoal's ppo makes all its epochs, however far the policy has moved: take agent sb3:PPO to stop them early",
    # agents
    "a2c": "take sb3:A2C",
    "a3c": "take sb3:A2C, which is its form without asynchronous workers",
    **dict.fromkeys(("reinforce", "vpg"), "take sb3:A2C"),
    "ddpg": "take td3, its successor, or sb3:DDPG",
    "trpo": "take sb3:TRPO, or ppo",
    "tqc": "take sb3:TQC",
    **dict.fromkeys(("qrdqn", "qr_dqn"), "take sb3:QRDQN"),
    "crossq": "take sb3:CrossQ",
    **dict.fromkeys(
        ("maskableppo", "maskable_ppo"),
        "take ppo, which heeds the action_mask of observations or of an info, or sb3:MaskablePPO",
    ),
    **dict.fromkeys(
        ("recurrentppo", "recurrent_ppo", "rppo", "ppo_lstm", "lstm_ppo"),
        "take ppo with config.lstm_hidden_size, or sb3:RecurrentPPO",
    ),
    **dict.fromkeys(("ddqn", "double_dqn"), "take dqn, with config.double"),
    "rainbow": "take dqn with config.double and config.n_step",
    **dict.fromkeys(
        ("her", "herreplaybuffer", "her_replay_buffer", "hindsight"),
        "there is no hindsight experience replay (HER): sac and td3 take goals in observations as they are",
    ),
    **dict.fromkeys(("openai_es", "ars", "cma_es", "cmaes"), "an evolution strategy is a method: es"),
    **dict.fromkeys(("impala", "appo"), "take ppo; impala is a network: config.network"),
}
# Answers to flags of commands that take the fields of an experiment.
FLAGS = {
    **dict.fromkeys(
        ("track", "wandb", "use_wandb", "wandb_project", "wandb_project_name", "wandb_entity"),
        "write --set wandb.project=NAME to log the run to Weights & Biases",
    ),
    **dict.fromkeys(
        ("tensorboard", "tensorboard_log", "tb"), "curves are always written: tensorboard --logdir RUN/tensorboard"
    ),
    **dict.fromkeys(
        ("gpu", "gpus", "num_gpus", "use_gpu", "cuda", "device", "devices", "accelerator"),
        "a GPU is used where JAX finds one: install the extra gpu (JAX_PLATFORMS=cpu leaves it alone)",
    ),
    **dict.fromkeys(
        ("total_timesteps", "n_timesteps", "total_steps", "max_steps", "timesteps"),
        "write --budget STEPS, steps of all members and evaluations; each trains for --generations x --interval",
    ),
    **dict.fromkeys(
        ("hours", "minutes", "max_hours", "max_time", "time", "duration", "walltime", "timeout", "time_budget"),
        "write --time-limit 2h",
    ),
    **dict.fromkeys(
        ("patience", "early_stopping", "early_stop", "max_no_improvement_evals"),
        "write --stop-patience N, in generations",
    ),
    **dict.fromkeys(("reward_threshold", "target_reward", "target_fitness", "stop_reward"), "write --stop-fitness N"),
    **dict.fromkeys(("dry_run", "dryrun", "check", "fast_dev_run"), "shoal doctor checks an experiment by a dry run"),
    **dict.fromkeys(
        ("config", "config_file", "conf", "cfg", "file", "yaml", "experiment"), "give the file without a flag"
    ),
    **dict.fromkeys(("exp_name", "experiment_name", "run_name", "name"), "write --run-dir PATH"),
    **dict.fromkeys(
        ("num_workers", "n_jobs", "jobs", "num_processes", "num_cpus"),
        "all cores are used; --workers N starts several workers, here or on a cluster",
    ),
    **dict.fromkeys(
        ("save_freq", "save_interval", "checkpoint_freq", "checkpoint_interval"),
        "write --set checkpoint.every=N, in generations",
    ),
    **dict.fromkeys(("eval_freq", "eval_interval"), "members are evaluated after each --interval"),
    **dict.fromkeys(("n_eval_episodes", "eval_episodes", "num_eval_episodes"), "write --set fitness.episodes=N"),
    **dict.fromkeys(
        ("render", "video", "capture_video", "record_video"),
        "afterwards, shoal play RUN --video champion.mp4 records the champion",
    ),
    **dict.fromkeys(("n_trials", "trials", "num_samples"), "write --population N: its members are the trials"),
    **dict.fromkeys(
        ("seeds", "n_seeds", "num_seeds"), "shoal train --seeds 0 1 2 makes a run of each, shoal study compares methods"
    ),
    **dict.fromkeys(
        ("resume", "load", "restore", "checkpoint", "load_run", "pretrained"),
        "shoal resume RUN continues a run; --init-from RUN starts another one from its weights",
    ),
    **dict.fromkeys(("iterations", "num_iterations", "max_iterations"), "write --generations N"),
}


def called_here(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that other libraries give this name, or the other way round."""
    return [here for here in (name, *ALIASES.get(spelt(name), ())) if here in known]


def spelt(name: str) -> str:
    """Spell a name as the tables here do."""
    return name.lower().replace("-", "_").replace(" ", "_")
