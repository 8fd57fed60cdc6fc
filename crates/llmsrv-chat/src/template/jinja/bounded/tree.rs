//! The syntax tree of a template, copied with filters around everything new, and in the place of what
//! reads much.

use minijinja::machinery::ast::{self, CallArg, Expr, Spanned, Stmt};
use minijinja::value::Value;

use super::{ASSIGNED, EQ, GE, GT, IN, INDEXED, ITERATED, LE, LT, NE, READ, WEIGHED, WRITTEN};

/// Returns the tree with everything new weighed. Other templates cannot be used: there are none.
pub(in super::super) fn tree<'a>(stmt: &Stmt<'a>) -> Result<Stmt<'a>, Unsupported> {
    Ok(match stmt {
        Stmt::Template(s) => Stmt::Template(s.put(ast::Template {
            children: trees(&s.children)?,
        })),
        Stmt::EmitExpr(s) => Stmt::EmitExpr(s.put(ast::EmitExpr {
            expr: wrap(expr(&s.expr), WRITTEN),
        })),
        Stmt::EmitRaw(s) => {
            let raw = Expr::Const(s.put(ast::Const {
                value: Value::from(s.raw),
            }));
            Stmt::EmitExpr(s.put(ast::EmitExpr {
                expr: wrap(raw, WRITTEN),
            }))
        }
        Stmt::ForLoop(s) => Stmt::ForLoop(s.put(ast::ForLoop {
            target: target(&s.target),
            iter: wrap(expr(&s.iter), ITERATED),
            filter_expr: s.filter_expr.as_ref().map(expr),
            recursive: s.recursive,
            body: trees(&s.body)?,
            else_body: trees(&s.else_body)?,
        })),
        Stmt::IfCond(s) => Stmt::IfCond(s.put(ast::IfCond {
            expr: expr(&s.expr),
            true_body: trees(&s.true_body)?,
            false_body: trees(&s.false_body)?,
        })),
        Stmt::WithBlock(s) => Stmt::WithBlock(
            s.put(ast::WithBlock {
                assignments: s
                    .assignments
                    .iter()
                    .map(|(name, value)| (target(name), expr(value)))
                    .collect(),
                body: trees(&s.body)?,
            }),
        ),
        Stmt::Set(s) => Stmt::Set(s.put(ast::Set {
            target: target(&s.target),
            expr: match s.target {
                Expr::Var(_) => expr(&s.expr),
                _ => wrap(expr(&s.expr), ASSIGNED),
            },
        })),
        Stmt::SetBlock(s) => Stmt::SetBlock(s.put(ast::SetBlock {
            target: target(&s.target),
            filter: s.filter.as_ref().map(expr),
            body: trees(&s.body)?,
        })),
        Stmt::AutoEscape(s) => Stmt::AutoEscape(s.put(ast::AutoEscape {
            enabled: expr(&s.enabled),
            body: trees(&s.body)?,
        })),
        Stmt::FilterBlock(s) => Stmt::FilterBlock(s.put(ast::FilterBlock {
            filter: expr(&s.filter),
            body: trees(&s.body)?,
        })),
        Stmt::Macro(s) => Stmt::Macro(macro_tree(s)?),
        Stmt::CallBlock(s) => Stmt::CallBlock(s.put(ast::CallBlock {
            call: call(&s.call),
            macro_decl: macro_tree(&s.macro_decl)?,
        })),
        Stmt::Continue(s) => Stmt::Continue(s.put(ast::Continue)),
        Stmt::Break(s) => Stmt::Break(s.put(ast::Break)),
        // The machine keeps what `do` computes until the end: a variable keeps the last one.
        Stmt::Do(s) => Stmt::Set(s.put(ast::Set {
            target: Expr::Var(s.put(ast::Var { id: DONE })),
            expr: weigh(Expr::Call(call(&s.call))),
        })),
        _ => return Err(Unsupported),
    })
}

/// A template that wants other templates.
#[derive(Debug)]
pub(in super::super) struct Unsupported;

fn trees<'a>(stmts: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, Unsupported> {
    stmts.iter().map(tree).collect()
}

fn macro_tree<'a>(s: &Spanned<ast::Macro<'a>>) -> Result<Spanned<ast::Macro<'a>>, Unsupported> {
    Ok(s.put(ast::Macro {
        name: s.name,
        args: s.args.iter().map(target).collect(),
        defaults: exprs(&s.defaults),
        body: trees(&s.body)?,
    }))
}

fn exprs<'a>(all: &[Expr<'a>]) -> Vec<Expr<'a>> {
    all.iter().map(expr).collect()
}

/// A copy of an expression in which everything new is weighed, and everything read is charged.
fn expr<'a>(original: &Expr<'a>) -> Expr<'a> {
    match original {
        Expr::BinOp(s) => {
            let comparison = match s.op {
                op @ (ast::BinOpKind::Add | ast::BinOpKind::Mul | ast::BinOpKind::Concat) => {
                    // What is no constant is not computed by the compiler.
                    let (left, right) = (weigh(expr(&s.left)), expr(&s.right));
                    return weigh(Expr::BinOp(s.put(ast::BinOp { op, left, right })));
                }
                ast::BinOpKind::Eq => EQ,
                ast::BinOpKind::Ne => NE,
                ast::BinOpKind::Lt => LT,
                ast::BinOpKind::Lte => LE,
                ast::BinOpKind::Gt => GT,
                ast::BinOpKind::Gte => GE,
                ast::BinOpKind::In => IN,
                _ => return copied(original, expr),
            };
            Expr::Filter(s.put(ast::Filter {
                name: comparison,
                expr: Some(expr(&s.left)),
                args: vec![CallArg::Pos(expr(&s.right))],
            }))
        }
        // Several comparisons in a row end with the first that is false.
        Expr::Compare(_) => copied(original, |part| wrap(expr(part), READ)),
        Expr::GetItem(s) => Expr::GetItem(s.put(ast::GetItem {
            expr: wrap(expr(&s.expr), INDEXED),
            subscript_expr: match &s.subscript_expr {
                Expr::Const(_) => expr(&s.subscript_expr),
                computed => wrap(expr(computed), READ),
            },
        })),
        Expr::Slice(s) => weigh(Expr::Slice(s.put(ast::Slice {
            expr: wrap(expr(&s.expr), INDEXED),
            start: s.start.as_ref().map(expr),
            stop: s.stop.as_ref().map(expr),
            step: s.step.as_ref().map(expr),
        }))),
        Expr::Call(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => {
            weigh(copied(original, expr))
        }
        _ => copied(original, expr),
    }
}

/// A copy of what is assigned to: nothing new comes out of it.
fn target<'a>(original: &Expr<'a>) -> Expr<'a> {
    copied(original, target)
}

fn weigh(expr: Expr<'_>) -> Expr<'_> {
    wrap(expr, WEIGHED)
}

fn wrap<'a>(inner: Expr<'a>, name: &'static str) -> Expr<'a> {
    let span = inner.span();
    let filter = ast::Filter {
        name,
        expr: Some(inner),
        args: Vec::new(),
    };
    Expr::Filter(Spanned::new(filter, span))
}

/// Copies an expression, its parts by `part`.
fn copied<'a>(original: &Expr<'a>, part: fn(&Expr<'a>) -> Expr<'a>) -> Expr<'a> {
    let parts = |all: &[Expr<'a>]| all.iter().map(part).collect::<Vec<_>>();
    let maybe = |one: &Option<Expr<'a>>| one.as_ref().map(part);
    match original {
        Expr::Var(s) => Expr::Var(s.put(ast::Var { id: s.id })),
        Expr::Const(s) => Expr::Const(s.put(ast::Const {
            value: s.value.clone(),
        })),
        Expr::Slice(s) => Expr::Slice(s.put(ast::Slice {
            expr: part(&s.expr),
            start: maybe(&s.start),
            stop: maybe(&s.stop),
            step: maybe(&s.step),
        })),
        Expr::UnaryOp(s) => {
            #[expect(clippy::needless_match, reason = "the type cannot be copied")]
            let op = match s.op {
                ast::UnaryOpKind::Not => ast::UnaryOpKind::Not,
                ast::UnaryOpKind::Neg => ast::UnaryOpKind::Neg,
            };
            let expr = part(&s.expr);
            Expr::UnaryOp(s.put(ast::UnaryOp { op, expr }))
        }
        Expr::BinOp(s) => Expr::BinOp(s.put(ast::BinOp {
            op: s.op,
            left: part(&s.left),
            right: part(&s.right),
        })),
        Expr::Compare(s) => {
            let ops = s.ops.iter().map(|op| ast::CompareOp {
                op: op.op,
                expr: part(&op.expr),
            });
            Expr::Compare(s.put(ast::Compare {
                expr: part(&s.expr),
                ops: ops.collect(),
            }))
        }
        Expr::IfExpr(s) => Expr::IfExpr(s.put(ast::IfExpr {
            test_expr: part(&s.test_expr),
            true_expr: part(&s.true_expr),
            false_expr: maybe(&s.false_expr),
        })),
        Expr::Filter(s) => Expr::Filter(s.put(ast::Filter {
            name: s.name,
            expr: maybe(&s.expr),
            args: arguments(&s.args),
        })),
        Expr::Test(s) => Expr::Test(s.put(ast::Test {
            name: s.name,
            expr: part(&s.expr),
            args: arguments(&s.args),
        })),
        Expr::GetAttr(s) => Expr::GetAttr(s.put(ast::GetAttr {
            expr: part(&s.expr),
            name: s.name,
        })),
        Expr::GetItem(s) => Expr::GetItem(s.put(ast::GetItem {
            expr: part(&s.expr),
            subscript_expr: part(&s.subscript_expr),
        })),
        Expr::Call(s) => Expr::Call(call(s)),
        Expr::List(s) => Expr::List(s.put(ast::List {
            items: parts(&s.items),
        })),
        Expr::Tuple(s) => Expr::Tuple(s.put(ast::Tuple {
            items: parts(&s.items),
        })),
        Expr::Map(s) => Expr::Map(s.put(ast::Map {
            keys: parts(&s.keys),
            values: parts(&s.values),
        })),
    }
}

fn call<'a>(s: &Spanned<ast::Call<'a>>) -> Spanned<ast::Call<'a>> {
    // The name of what is called stays as it is: `loop`, `caller` and methods are told by it.
    let called = match &s.expr {
        Expr::GetAttr(method) => Expr::GetAttr(method.put(ast::GetAttr {
            expr: expr(&method.expr),
            name: method.name,
        })),
        other => expr(other),
    };
    let mut args = arguments(&s.args);
    if matches!(&s.expr, Expr::GetAttr(method) if method.name == CHANGED) {
        // `loop.changed` compares with the values before.
        for arg in &mut args {
            if let CallArg::Pos(value) = arg {
                *value = wrap(std::mem::replace(value, nothing(s)), READ);
            }
        }
    }
    s.put(ast::Call { expr: called, args })
}

fn arguments<'a>(args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    let argument = |arg: &CallArg<'a>| match arg {
        CallArg::Pos(value) => CallArg::Pos(expr(value)),
        CallArg::Kwarg(name, value) => CallArg::Kwarg(name, expr(value)),
        CallArg::PosSplat(value) => CallArg::PosSplat(expr(value)),
        CallArg::KwargSplat(value) => CallArg::KwargSplat(expr(value)),
    };
    args.iter().map(argument).collect()
}

fn nothing<'a, T>(place: &Spanned<T>) -> Expr<'a> {
    let value = Value::UNDEFINED;
    Expr::Const(place.put(ast::Const { value }))
}

/// A new node in the place of another.
trait InPlace {
    fn put<U>(&self, new: U) -> Spanned<U>;
}

impl<T> InPlace for Spanned<T> {
    fn put<U>(&self, new: U) -> Spanned<U> {
        Spanned::new(new, self.span())
    }
}

/// The variable that holds what `do` computed. No template can spell this name.
const DONE: &str = "llmsrv:done";
const CHANGED: &str = "changed";
