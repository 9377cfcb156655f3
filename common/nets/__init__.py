"""Networks: one description and one forward pass for NumPy, TensorFlow and ONNX; the Keras models behind them."""
