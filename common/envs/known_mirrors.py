"""Environments whose mirror is known.

The walkers move in a plane: their two legs change places. The Ant moves in space, and its mirror is the plane of x
and z. Of positions, velocities and forces y changes its sign; of rotations and torques x and z do. MuJoCo's Humanoid
is left out, because its right and left joints differ (armature 0.008 and 0.01 at the hips, stiffness 0 and 1 at the
knees).
"""

import math

from common.envs.mirrors import Entries, Mirror


def _mirror(observation: tuple[int, ...], action: tuple[int, ...]) -> Mirror:
    return Mirror(Entries(observation), Entries(action))


# The walker's hull and its ten lidar rays lie in the plane in which both legs move: they stay. The hips count their
# angles from where they were built, one leg 0.05 before the middle and the other 0.05 behind it.
_WALKER = Mirror(
    Entries(
        (1, 2, 3, 4, 10, 11, 12, 13, 14, 5, 6, 7, 8, 9, *range(15, 25)),
        tuple({4: 0.1, 9: -0.1}.get(i, 0.0) for i in range(24)),
    ),
    Entries((3, 4, 1, 2)),
)
_LEANS = math.atan(0.001 / 0.6)  # radians by which the middle of MuJoCo's pole lies beside its hinge at angle 0
_LANDER = (-1, 2, -3, 4, -5, -6, 8, 7)


def _ant() -> Mirror:
    """The front left leg (1) changes places with the right back one (4), and 2 with 3; hips turn the other way.

    Observations are the torso's height and quaternion, the angles of hip and ankle of legs 1 to 4, the torso's
    velocity and angular velocity, the angular velocities of the joints, and for 13 bodies the torque and force of
    contacts. The bodies are the torso and three of each leg.
    """
    legs = (4, 3, 2, 1)
    positions = (1, 2, -3, 4, -5, *_joints(6, legs))
    velocities = (14, -15, 16, -17, 18, -19, *_joints(20, legs))
    bodies = (0, *(3 * leg - part for leg in legs for part in (2, 1, 0)))  # the torso is 0
    contacts = [sign * (28 + 6 * body + i) for body in bodies for i, sign in enumerate((-1, 1, -1, 1, -1, 1))]
    return _mirror((*positions, *velocities, *contacts), _joints(1, (2, 1, 4, 3)))  # motors start with leg 4


def _joints(first: int, legs: tuple[int, ...]) -> tuple[int, ...]:
    """Of the hip and the ankle of four legs, from position `first` on; `legs` are their mirror images."""
    return tuple(entry for leg in legs for entry in (-(first + 2 * leg - 2), first + 2 * leg - 1))


KNOWN = {
    "Acrobot": _mirror((1, -2, 3, -4, -5, -6), (3, 2, 1)),
    "BipedalWalker": _WALKER,
    "BipedalWalkerHardcore": _WALKER,
    "CartPole": _mirror((-1, -2, -3, -4), (2, 1)),
    "LunarLander": _mirror(_LANDER, (1, 4, 3, 2)),
    "LunarLanderContinuous": _mirror(_LANDER, (1, -2)),
    "Pendulum": _mirror((1, -2, -3), (-1,)),
    "Ant-v5": _ant(),
    "InvertedDoublePendulum-v5": _mirror((-1, -2, -3, 4, 5, -6, -7, -8, -9), (-1,)),
    "InvertedPendulum-v5": Mirror(Entries((-1, -2, -3, -4), (0.0, -2 * _LEANS, 0.0, 0.0)), Entries((-1,))),
    "Reacher-v5": _mirror((1, 2, -3, -4, 5, -6, -7, -8, 9, -10), (-1, -2)),
    "Swimmer-v5": _mirror((-1, -2, -3, 4, -5, -6, -7, -8), (-1, -2)),
    "Walker2d-v5": _mirror((1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11, 15, 16, 17, 12, 13, 14), (4, 5, 6, 1, 2, 3)),
}
"""Mirrors that are known, by the environment's name; with its version where others differ."""
