//! The HTTP server: routes, dialects, model manager
