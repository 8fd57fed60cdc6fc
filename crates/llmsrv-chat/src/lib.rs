//! Chat templates, template capabilities and splitting of model output
