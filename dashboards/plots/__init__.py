"""Answers as pictures: the charts of an answer, their drawing with matplotlib, and documents that contain them."""
