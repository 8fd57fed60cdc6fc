//! Questions to and changes of a parsed Go template.

use gotmpl::parse::{
    ActionNode, BranchNode, CommandNode, Expr, ListNode, Node, Number, PipeNode, Pos, SmolStr,
};

use super::functions;

/// A function that does not exist, with its line.
pub(super) fn unknown_function(list: &ListNode) -> Option<(String, usize)> {
    let mut unknown = None;
    each_expr(list, &mut |expr| {
        if let Expr::Identifier(pos, name) = expr
            && !functions::NAMES.contains(&name.as_str())
        {
            unknown.get_or_insert((name.to_string(), pos.line));
        }
    });
    unknown
}

/// The line of a `template` action without data, whose templates could read nothing.
pub(super) fn call_without_data(list: &ListNode) -> Option<usize> {
    list.nodes.iter().find_map(|node| match node {
        Node::Template(template) if template.pipe.is_none() => Some(template.pos.line),
        Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
            let blocks = [Some(&branch.body), branch.else_body.as_ref()];
            blocks.into_iter().flatten().find_map(call_without_data)
        }
        Node::List(inner) => call_without_data(inner),
        _ => None,
    })
}

/// The first and the last text of the innermost block around `.Thinking`, trimmed.
pub(super) fn thinking_tags(list: &ListNode) -> Option<(String, String)> {
    let (mut open, mut close) = (String::new(), String::new());
    each_thinking(list, false, &mut |block| {
        if let Some(Node::Text(first)) = block.nodes.first() {
            first.text.trim().clone_into(&mut open);
        }
        if let Some(Node::Text(last)) = block.nodes.last() {
            last.text.trim().clone_into(&mut close);
        }
    });
    (!open.is_empty() && !close.is_empty()).then_some((open, close))
}

/// The first text in the block about `.ToolCalls`, up to `{`.
pub(super) fn tool_tag(list: &ListNode) -> Option<String> {
    let block = list.nodes.iter().find_map(tool_calls_block)?;
    let text = first_text(block)?;
    let tag = text.split('{').next().unwrap_or_default().trim();
    (!tag.is_empty()).then(|| tag.replace("\r\n", "\n"))
}

/// The tree up to and including the first place that prints `field`.
pub(super) fn cut_after_field(list: &ListNode, field: &str) -> ListNode {
    let mut cut = list.clone();
    cut_list(&mut cut, field);
    cut
}

/// `{{ .name }}`.
pub(super) fn print_field(name: &str) -> Node {
    let pos = Pos::new(0, 1);
    action(vec![CommandNode {
        pos,
        args: vec![Expr::Field(pos, vec![name.into()])],
    }])
}

/// Makes a tree ready to run: what is printed passes through [`functions::PRINT`], and every block
/// pays for its nodes through [`functions::STEP`] when it is entered.
pub(super) fn prepare(list: &mut ListNode) {
    for node in &mut list.nodes {
        match node {
            Node::Action(action) if action.pipe.decl.is_empty() => {
                action.pipe.commands.push(call(functions::PRINT, None));
            }
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                prepare(&mut branch.body);
                branch.else_body.iter_mut().for_each(prepare);
            }
            Node::List(inner) => prepare(inner),
            Node::Action(_)
            | Node::Text(_)
            | Node::Template(_)
            | Node::Define(_)
            | Node::Break(_)
            | Node::Continue(_) => {}
        }
    }
    let cost = list.nodes.len() as i64 + 1;
    list.nodes
        .insert(0, action(vec![call(functions::STEP, Some(cost))]));
}

fn action(commands: Vec<CommandNode>) -> Node {
    let pos = Pos::new(0, 1);
    Node::Action(ActionNode {
        pos,
        pipe: PipeNode {
            pos,
            decl: Vec::new(),
            commands,
            is_assign: false,
        },
    })
}

fn call(function: &str, number: Option<i64>) -> CommandNode {
    let pos = Pos::new(0, 1);
    let number = number.map(|n| Expr::Number(pos, Number::Int(n)));
    CommandNode {
        pos,
        args: [Expr::Identifier(pos, function.into())]
            .into_iter()
            .chain(number)
            .collect(),
    }
}

/// Cuts after the first print of `field`; `true` if there was one.
fn cut_list(list: &mut ListNode, field: &str) -> bool {
    for i in 0..list.nodes.len() {
        let found = match &mut list.nodes[i] {
            Node::Action(action) => action.pipe.decl.is_empty() && mentions(&action.pipe, field),
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                if cut_list(&mut branch.body, field) {
                    branch.else_body = None;
                    true
                } else {
                    branch
                        .else_body
                        .as_mut()
                        .is_some_and(|list| cut_list(list, field))
                }
            }
            Node::List(inner) => cut_list(inner, field),
            _ => false,
        };
        if found {
            list.nodes.truncate(i + 1);
            return true;
        }
    }
    false
}

/// Calls `found` with the innermost block around each `.Thinking` whose innermost loop runs over the
/// messages, in the order of the text.
fn each_thinking(list: &ListNode, in_messages: bool, found: &mut dyn FnMut(&ListNode)) {
    for node in &list.nodes {
        let branch = match node {
            Node::Action(action) => {
                if in_messages && mentions(&action.pipe, "Thinking") {
                    found(list);
                }
                continue;
            }
            Node::Template(template) => {
                let pipe = template.pipe.as_ref();
                if in_messages && pipe.is_some_and(|pipe| mentions(pipe, "Thinking")) {
                    found(list);
                }
                continue;
            }
            Node::List(inner) => {
                each_thinking(inner, in_messages, found);
                continue;
            }
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => branch,
            Node::Text(_) | Node::Define(_) | Node::Break(_) | Node::Continue(_) => continue,
        };
        let inside = match node {
            Node::Range(_) => mentions(&branch.pipe, "Messages"),
            _ => in_messages,
        };
        if inside && mentions(&branch.pipe, "Thinking") {
            found(list);
        }
        for block in [Some(&branch.body), branch.else_body.as_ref()]
            .into_iter()
            .flatten()
        {
            each_thinking(block, inside, found);
        }
    }
}

/// The body of the first `if`, `range` or `with` about `.ToolCalls`.
fn tool_calls_block(node: &Node) -> Option<&ListNode> {
    let branch: &BranchNode = match node {
        Node::If(branch) | Node::Range(branch) | Node::With(branch) => branch,
        Node::List(list) => return list.nodes.iter().find_map(tool_calls_block),
        _ => return None,
    };
    if mentions(&branch.pipe, "ToolCalls") {
        return Some(&branch.body);
    }
    [Some(&branch.body), branch.else_body.as_ref()]
        .into_iter()
        .flatten()
        .find_map(|block| block.nodes.iter().find_map(tool_calls_block))
}

/// The first visible text before anything is printed.
fn first_text(list: &ListNode) -> Option<&str> {
    for node in &list.nodes {
        match node {
            Node::Text(text) if text.text.trim().is_empty() => {}
            Node::Text(text) => return Some(&text.text),
            Node::List(inner) => {
                if let Some(text) = first_text(inner) {
                    return Some(text);
                }
            }
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                return first_text(&branch.body)
                    .or_else(|| branch.else_body.as_ref().and_then(first_text));
            }
            Node::Action(action) if !action.pipe.decl.is_empty() => {}
            Node::Action(_) => return None,
            Node::Template(_) | Node::Define(_) | Node::Break(_) | Node::Continue(_) => {}
        }
    }
    None
}

fn mentions(pipe: &PipeNode, field: &str) -> bool {
    let mut found = false;
    each_expr_of_pipe(pipe, &mut |expr| {
        found |= !matches!(expr, Expr::Identifier(..)) && fields(expr).any(|name| name == field);
    });
    found
}

/// The names an expression reads.
fn fields(expr: &Expr) -> impl Iterator<Item = &str> {
    let (first, rest) = match expr {
        Expr::Field(_, names) | Expr::Chain(_, _, names) => (None, names.as_slice()),
        Expr::Variable(_, name, names) => (Some(name), names.as_slice()),
        _ => (None, [].as_slice()),
    };
    first.into_iter().chain(rest).map(SmolStr::as_str)
}

fn each_expr(list: &ListNode, visit: &mut dyn FnMut(&Expr)) {
    for node in &list.nodes {
        match node {
            Node::Action(action) => each_expr_of_pipe(&action.pipe, visit),
            Node::Template(template) => {
                template
                    .pipe
                    .iter()
                    .for_each(|pipe| each_expr_of_pipe(pipe, visit));
            }
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                each_expr_of_pipe(&branch.pipe, visit);
                each_expr(&branch.body, visit);
                branch
                    .else_body
                    .iter()
                    .for_each(|block| each_expr(block, visit));
            }
            Node::List(inner) => each_expr(inner, visit),
            Node::Define(define) => each_expr(&define.body, visit),
            Node::Text(_) | Node::Break(_) | Node::Continue(_) => {}
        }
    }
}

fn each_expr_of_pipe(pipe: &PipeNode, visit: &mut dyn FnMut(&Expr)) {
    for expr in pipe.commands.iter().flat_map(|command| &command.args) {
        visit_expr(expr, visit);
    }
}

fn visit_expr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    match expr {
        Expr::Pipe(_, pipe) => each_expr_of_pipe(pipe, visit),
        Expr::Chain(_, inner, _) => visit_expr(inner, visit),
        _ => {}
    }
}
