//! CPU arithmetic on slices: quantised formats, matrix products, attention
