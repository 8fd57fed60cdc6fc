//! `llmsrv generate`: the files that are made from the program itself.

mod man;

use std::{fs, path::Path};

use anyhow::Context as _;

use super::completions;
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
    for command in [cli::command(), logkit_cli::command()] {
        // `help` needs no page of its own.
        let mut command = command.disable_help_subcommand(true);
        command.build();
        man::write(&command, None, folder)
            .with_context(|| format!("cannot write {}", folder.display()))?;
    }
    Ok(())
}

/// They ask the program, so that names of models complete.
fn completions(folder: &Path) -> Result<(), Failure> {
    for (shell, before, after) in completions::FILES {
        for program in ["llmsrv", "logkit"] {
            let path = folder.join(format!("{before}{program}{after}"));
            fs::write(&path, completions::script(shell, program)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
