"""What runs on a device: training, gradients, slots, delivery, its own speed."""
