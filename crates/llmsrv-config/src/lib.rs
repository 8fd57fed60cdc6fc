//! Every setting of the program: one table, one loader, one rendering.
//!
//! [`registry::SETTINGS`] declares each setting once. [`load`] takes what the program was given
//! (defaults, a TOML file, a `.env` file, the environment, flags), lets the strongest layer win and
//! remembers which one it was. It is pure: [`Inputs::from_process`] is the only function that looks
//! at the process. Nothing here prints.

pub mod address;
mod env_file;
mod error;
mod folders;
mod inputs;
pub mod keys;
mod logkit;
mod nearest;
mod origin;
pub mod registry;
mod reload;
pub mod render;
mod server;
mod setting;
mod source;
mod toml_file;
mod upstream;
pub mod value;
mod values;

pub use address::Address;
pub use error::{Error, Errors, Warning};
pub use folders::Folders;
pub use inputs::{
    Flag, Inputs, Network, Request, TextFile, editor, has_ask_program, search_path, sudo_user,
};
pub use logkit::{Ambient, ModelServers};
pub use nearest::nearest;
pub use origin::{Origin, Resolved};
pub use registry::{ClientConfig, HostConfig, LogkitConfig, SETTINGS, ServerConfig};
pub use reload::Changes;
pub use setting::{Change, Kind, Redaction, Section, Setting, Status};
pub use source::{Loaded, load};
pub use upstream::UpstreamConfig;
pub use value::{Rate, Secret, Value};
pub use values::Verbosity;

/// The settings, typed.
#[derive(Clone, Debug)]
pub struct Config {
    /// The model server.
    pub server: ServerConfig,
    /// Commands that talk to a server.
    pub client: ClientConfig,
    /// Folders of the machine.
    pub host: HostConfig,
    /// Servers that answer for some models; only a file can set them.
    pub upstreams: Vec<UpstreamConfig>,
    /// The call logger.
    pub logkit: LogkitConfig,
}
