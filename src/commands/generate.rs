//! `llmsrv generate`: the files that are made from the program itself.

use std::{fs, path::Path};

use anyhow::Context as _;
use clap_complete::Shell;

use crate::{
    cli::{self, GenerateArgs},
    failure::Failure,
};

/// Writes `man/`, `completions/` and `docs/configuration.md` below the folder.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let folder = |name: &str| {
        let path = args.out.join(name);
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))
            .map(|()| path)
    };
    man_pages(&folder("man")?)?;
    completions(&folder("completions")?)?;
    let document = folder("docs")?.join("configuration.md");
    fs::write(&document, llmsrv_config::render::markdown())
        .with_context(|| format!("cannot write {}", document.display()))?;
    Ok(())
}

fn man_pages(folder: &Path) -> Result<(), Failure> {
    // `help` needs no page of its own.
    let command = cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("cannot write {}", folder.display()))?;
    Ok(())
}

fn completions(folder: &Path) -> Result<(), Failure> {
    for shell in [
        Shell::Bash,
        Shell::Zsh,
        Shell::Fish,
        Shell::PowerShell,
        Shell::Elvish,
    ] {
        clap_complete::generate_to(shell, &mut cli::command(), "llmsrv", folder)
            .with_context(|| format!("cannot write {}", folder.display()))?;
    }
    Ok(())
}
