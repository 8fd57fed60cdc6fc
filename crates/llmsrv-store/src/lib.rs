//! Model names, manifests and content-addressed blobs on disk
