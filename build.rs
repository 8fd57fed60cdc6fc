//! Tells the program what it is built from: `llmsrv --version` says it.

use std::{env, process::Command};

fn main() -> Result<(), env::VarError> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=PROGRAM_TARGET={}", env::var("TARGET")?);
    println!("cargo::rustc-env=PROGRAM_FEATURES={}", features().join(" "));
    // The environment names it where the sources come without their history.
    println!("cargo::rerun-if-env-changed=LLMSRV_BUILD_COMMIT");
    let named = env::var("LLMSRV_BUILD_COMMIT")
        .ok()
        .filter(|it| !it.is_empty());
    // A build for tests stays as it is at each commit: there it would only be compiled again.
    let is_optimised = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if let Some(commit) = named.or_else(|| is_optimised.then(commit).flatten()) {
        println!("cargo::rustc-env=PROGRAM_COMMIT={commit}");
    }
    Ok(())
}

/// The features of the manifest that are on; `default` only stands for others.
fn features() -> Vec<String> {
    let names = env::vars().filter_map(|(name, _)| {
        let name = name.strip_prefix("CARGO_FEATURE_")?;
        Some(name.to_lowercase().replace('_', "-"))
    });
    let mut names: Vec<String> = names.filter(|name| name != "default").collect();
    names.sort();
    names
}

/// The commit that is checked out, if the sources are those of a repository of their own and git is there.
fn commit() -> Option<String> {
    let wanted = ["rev-parse", "--show-prefix", "--git-path", "logs/HEAD"];
    let output = Command::new("git")
        .args(wanted)
        .args(["--short=12", "HEAD"])
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    // Below the top of a repository these sources are part of something else.
    let ["", moves, commit] = text.lines().collect::<Vec<_>>()[..] else {
        return None;
    };
    println!("cargo::rerun-if-changed={moves}");
    Some(commit.to_owned())
}
