"""Engine-free operators over partials and punctuation, and the engines that host them."""
