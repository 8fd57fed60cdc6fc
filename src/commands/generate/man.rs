//! Man pages: what the library makes of a command, with a synopsis as it is typed, examples that keep
//! their lines, exit statuses, and pages that belong to it.

use std::{fs, io, path::Path};

use clap::Command;
use clap_mangen::Man;

/// Writes the pages of a command and of all below it; `above` is the page it is below.
pub fn write(command: &Command, above: Option<&str>, folder: &Path) -> io::Result<()> {
    let name = name(command);
    fs::write(folder.join(format!("{name}.1")), page(command, above)?)?;
    for sub in subcommands(command) {
        write(sub, Some(&name), folder)?;
    }
    Ok(())
}

/// `llmsrv-key-add`
fn name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn page(command: &Command, above: Option<&str>) -> io::Result<Vec<u8>> {
    let name = name(command);
    // A page is long help: the library leaves out the text of what the short one hides.
    let shown = command.clone().mut_args(|arg| arg.hide_short_help(false));
    let man = Man::new(shown)
        .title(name.to_uppercase())
        .source(format!("llmsrv {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend_from_slice(synopsis(command).as_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if subcommands(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command
        .get_after_long_help()
        .or_else(|| command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    page.extend_from_slice(rest(&after).as_bytes());
    page.extend_from_slice(see_also(above, command).as_bytes());
    Ok(page)
}

/// What is typed: the name, the arguments and, for short, the options.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let lines: Vec<String> = usage.lines().map(|line| escaped(line.trim())).collect();
    format!(".SH SYNOPSIS\n.nf\n{}\n.fi\n", lines.join("\n"))
}

/// The text after the help: its first paragraph are the examples, another one the exit statuses.
fn rest(text: &str) -> String {
    let mut sections = String::new();
    let mut has_status = false;
    for paragraph in text.split("\n\n") {
        let (title, body) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        if title.starts_with("Examples:") {
            sections += &section("EXAMPLES", body, true);
        } else if let Some(first) = title.strip_prefix("Exit status:") {
            has_status = true;
            let as_typed = first.trim().is_empty();
            let text = format!("{}\n{body}", first.trim());
            sections += &section("EXIT STATUS", text.trim_start_matches('\n'), as_typed);
        } else if !paragraph.trim().is_empty() {
            sections += &section("NOTES", paragraph, paragraph.starts_with(' '));
        }
    }
    if !has_status {
        let text = "0 = success, 1 = failure, 2 = wrong use of the command line; llmsrv(1) has the others.";
        sections += &section("EXIT STATUS", text, false);
    }
    sections
}

fn section(title: &str, text: &str, as_typed: bool) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let indented = if as_typed { line } else { line.trim() };
            escaped(indented)
        })
        .collect();
    let text = lines.join("\n");
    if as_typed {
        format!(".SH {title}\n.nf\n{text}\n.fi\n")
    } else {
        format!(".SH {title}\n{text}\n")
    }
}

/// The page above, and those beside or below.
fn see_also(above: Option<&str>, command: &Command) -> String {
    let above = above.map(str::to_owned).into_iter();
    let pages: Vec<String> = above.chain(subcommands(command).map(name)).collect();
    if pages.is_empty() {
        return String::new();
    }
    let pages: Vec<String> = pages
        .iter()
        .map(|page| format!("\\fB{}\\fR(1)", escaped(page)))
        .collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(",\n"))
}

/// Makes text of what would be orders.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) {
        format!("\\&{line}")
    } else {
        line
    }
}
