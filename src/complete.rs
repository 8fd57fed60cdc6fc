//! Model names for shells that complete: read from the folder of manifests, without a server.

use std::{ffi::OsStr, fs, path::Path};

use clap_complete::{CompletionCandidate, PathCompleter, engine::ValueCompleter as _};
use llmsrv_config::{Inputs, Request, SETTINGS, load};
use llmsrv_convert::Target;

/// Most names offered; a shell asks at every key.
const MOST: usize = 1000;

/// Returns the models whose name starts with what is typed.
pub fn models(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else {
        return Vec::new();
    };
    // Settings that are wrong are reported by commands, not while typing.
    let Ok(loaded) = Inputs::from_process(Request::default()).and_then(|inputs| load(&inputs))
    else {
        return Vec::new();
    };
    let server = loaded.config.server;
    let stores = std::iter::once(server.models).chain(server.models_fallback);
    let mut names: Vec<String> = stores
        .flat_map(|store| names(&store.join("manifests")))
        .collect();
    // It stands for one of the others, or for the built-in model.
    names.push("default".to_owned());
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| name.starts_with(typed))
        .map(CompletionCandidate::new)
        .collect()
}

/// Returns the models whose name starts with what is typed, and the files.
pub fn models_and_files(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = models(typed);
    found.extend(PathCompleter::any().complete(typed));
    found
}

/// Returns the types that weights can be quantized to.
pub fn targets() -> Vec<CompletionCandidate> {
    let targets = Target::ALL.iter();
    targets
        .map(|target| CompletionCandidate::new(target.name()))
        .collect()
}

/// Returns the options of models, each with the sign after which its value follows.
pub fn options() -> Vec<CompletionCandidate> {
    let names = llmsrv_api::options::names();
    names
        .filter(|name| !llmsrv_api::options::is_legacy(name))
        .map(|name| CompletionCandidate::new(format!("{name}=")))
        .collect()
}

/// Returns the settings, each with the sign after which its value follows.
pub fn settings() -> Vec<CompletionCandidate> {
    SETTINGS
        .iter()
        .filter_map(|setting| {
            let path = setting.path()?;
            Some(CompletionCandidate::new(format!("{path}=")).help(Some(setting.help.into())))
        })
        .collect()
}

/// Returns the shortest form of each name below a folder `host/namespace/model/tag`. The tag
/// `latest` is left out: fewer characters to type mean the same.
fn names(manifests: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for host in entries(manifests) {
        for namespace in entries(&manifests.join(&host)) {
            for model in entries(&manifests.join(&host).join(&namespace)) {
                for tag in entries(&manifests.join(&host).join(&namespace).join(&model)) {
                    if found.len() >= MOST {
                        return found;
                    }
                    let prefix = match (host.as_str(), namespace.as_str()) {
                        ("registry.ollama.ai", "library") => String::new(),
                        ("registry.ollama.ai", namespace) => format!("{namespace}/"),
                        (host, namespace) => format!("{host}/{namespace}/"),
                    };
                    let tag = if tag == "latest" {
                        String::new()
                    } else {
                        format!(":{tag}")
                    };
                    found.push(format!("{prefix}{model}{tag}"));
                }
            }
        }
    }
    found
}

/// Returns the names in a folder that could be parts of a model's name.
fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "registry.ollama.ai/library/default/latest",
            "registry.ollama.ai/library/qwen/1b",
            "registry.ollama.ai/ann/mine/latest",
            "hf.co/user/repo/Q4_K_M",
            "registry.ollama.ai/library/default/.tmp",
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "{}").unwrap();
        }
        let mut found = names(dir.path());
        found.sort();
        assert_eq!(
            found,
            ["ann/mine", "default", "hf.co/user/repo:Q4_K_M", "qwen:1b"]
        );
        assert_eq!(names(Path::new("/nowhere/at/all")), Vec::<String>::new());
    }
}
