//! Every setting of the program: table, loader and rendering
