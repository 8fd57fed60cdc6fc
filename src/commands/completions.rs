//! `llmsrv completions`: the script that makes a shell ask this program what can follow.

use clap_complete::env::Shells;

use crate::{
    cli::{CompletionsArgs, ShellArg},
    failure::Failure,
    term,
};

/// Prints the script for one shell.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let name = match args.shell {
        ShellArg::Bash => "bash",
        ShellArg::Zsh => "zsh",
        ShellArg::Fish => "fish",
        ShellArg::Powershell => "powershell",
        ShellArg::Elvish => "elvish",
    };
    term::line(script(name, "llmsrv")?.trim_end())?;
    Ok(())
}

/// The shells, by the names that [`script`] takes, and how the file of a program is called.
pub const FILES: [(&str, &str, &str); 5] = [
    ("bash", "", ".bash"),
    ("zsh", "_", ""),
    ("fish", "", ".fish"),
    ("powershell", "_", ".ps1"),
    ("elvish", "", ".elv"),
];

/// Returns the script that makes a shell ask `program` what can follow.
pub fn script(shell: &str, program: &str) -> Result<String, Failure> {
    if shell == "bash" {
        return Ok(BASH.replace("PROGRAM", program));
    }
    let shells = Shells::builtins();
    let completer = shells
        .completer(shell)
        .ok_or_else(|| Failure::failed(format!("no completions are known for {shell}")))?;
    let mut script = Vec::new();
    completer.write_registration("COMPLETE", program, program, program, &mut script)?;
    let mut script = String::from_utf8_lossy(&script).trim_start().to_owned();
    if shell == "zsh" {
        // Found in the path of functions, the file itself is called at the first completion.
        script = format!(
            "{}\nif [[ ${{funcstack[1]}} == _{program} ]]; then\n    _clap_dynamic_completer_{program} \"$@\"\nfi\n",
            script.trim_end()
        );
    }
    Ok(script)
}

/// The library's script for bash does not know that bash breaks words at colons, which names of
/// models have, and at equal signs: here they are put together before asking, and what is already on the line is left
/// out of the answers.
const BASH: &str = r#"_clap_complete_PROGRAM() {
    local words=() word line=${COMP_LINE:0:COMP_POINT} head
    # The words before the cursor, each with the colons and equal signs within it.
    local i=0
    while ((i <= COMP_CWORD)); do
        word=${COMP_WORDS[i]}
        # A colon that was just typed counts as a word here, but not in $2.
        ((i == COMP_CWORD)) && [[ $word != [:=]* ]] && word=$2
        if ((i)) && [[ $line != [[:space:]]* && (${words[-1]} == *[:=] || $word == [:=]*) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        line=${line#*"${COMP_WORDS[i]}"}
        ((i += 1))
    done
    local current=${words[-1]}
    local IFS=$'\013'
    # What stands before the part that bash replaces.
    head=${current%"$2"}
    # shellcheck disable=SC2207 # IFS separates them
    COMPREPLY=($(
        _CLAP_IFS="$IFS" \
            _CLAP_COMPLETE_INDEX="$((${#words[@]} - 1))" \
            _CLAP_COMPLETE_COMP_TYPE="$COMP_TYPE" \
            _CLAP_COMPLETE_SPACE=false \
            COMPLETE=bash \
            PROGRAM -- "${words[@]}" 2>/dev/null
    )) || {
        unset COMPREPLY
        return
    }
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
    if [[ ${COMPREPLY-} =~ [=/:]$ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o nosort -F _clap_complete_PROGRAM PROGRAM 2>/dev/null ||
    complete -o bashdefault -F _clap_complete_PROGRAM PROGRAM
"#;
