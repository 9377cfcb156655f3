"""GRU and LSTM cells as arrays: layers that remember, whose formulas acting, updates and exports share.

Arrays are NumPy's or tensors. What a layer remembers is one array, the memory [n, Z], which begins with its H outputs.
"""

from typing import Any, NamedTuple


class GRU(NamedTuple):
    """A gated recurrent unit (arXiv:1406.1078), with the reset gate after the product as in Keras and cuDNN.

    Its memory is its output: Z = H. The gates stand in the order update, reset, candidate.
    """

    kernel: Any  # [in, 3H]
    bias: Any  # [3H]
    recurrent_kernel: Any  # [H, 3H]
    recurrent_bias: Any  # [3H]

    @property
    def units(self) -> int:
        """H, how many numbers it returns."""
        return int(self.recurrent_kernel.shape[0])

    @property
    def memory_size(self) -> int:
        """Z, how many numbers it remembers."""
        return self.units

    def step(self, operations: Any, sums: Any, carried: Any, memory: Any) -> Any:
        """The next memory [n, H]: sums x·kernel + bias, and carried outputs·recurrent_kernel, are [n, 3H] each."""
        units, carried = self.units, carried + self.recurrent_bias
        gates = operations.sigmoid(sums[:, : 2 * units] + carried[:, : 2 * units])  # [n, 2H]
        update, reset = gates[:, :units], gates[:, units:]  # [n, H] each
        candidate = operations.tanh(sums[:, 2 * units :] + reset * carried[:, 2 * units :])  # [n, H]
        return candidate + update * (memory - candidate)


class LSTM(NamedTuple):
    """A long short-term memory (Hochreiter & Schmidhuber 1997) with a forget gate.

    Its memory is its output and its cell: Z = 2H. The gates stand in the order input, forget, candidate, output.
    """

    kernel: Any  # [in, 4H]
    bias: Any  # [4H]
    recurrent_kernel: Any  # [H, 4H]

    @property
    def units(self) -> int:
        """H, how many numbers it returns."""
        return int(self.recurrent_kernel.shape[0])

    @property
    def memory_size(self) -> int:
        """Z, how many numbers it remembers."""
        return 2 * self.units

    def step(self, operations: Any, sums: Any, carried: Any, memory: Any) -> Any:
        """The next memory [n, 2H]: sums x·kernel + bias, and carried outputs·recurrent_kernel, are [n, 4H] each."""
        units, tanh = self.units, operations.tanh
        gates = sums + carried  # [n, 4H]
        put, keep, candidate, show = (gates[:, i * units : (i + 1) * units] for i in range(4))  # [n, H] each
        cell = operations.sigmoid(keep) * memory[:, units:] + operations.sigmoid(put) * tanh(candidate)  # [n, H]
        return operations.beside([operations.sigmoid(show) * tanh(cell), cell])


RECURRENT: dict[str, type[GRU] | type[LSTM]] = {"gru": GRU, "lstm": LSTM}
"""Name of a kind of memory → its layer."""
