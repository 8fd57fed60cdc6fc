_clap_complete_logkit() {
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
            logkit -- "${words[@]}" 2>/dev/null
    )) || {
        unset COMPREPLY
        return
    }
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
    if [[ ${COMPREPLY-} =~ [=/:]$ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o nosort -F _clap_complete_logkit logkit 2>/dev/null ||
    complete -o bashdefault -F _clap_complete_logkit logkit
