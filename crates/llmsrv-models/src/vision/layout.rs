//! What stands in the prompt in the place of an image: its rows, and the text around and between them that
//! its model was trained with.

use std::borrow::Cow;

use llmsrv_engine::Part;

use super::{
    config::Kind,
    tiles::{Cut, Rule},
};

/// An image of one view.
pub(super) fn of_one(kind: Kind, n_rows: usize) -> Vec<Part> {
    let (before, after) = match kind {
        Kind::Gemma3 => ("\n\n<start_of_image>", "<end_of_image>\n\n"),
        Kind::Gemma4 | Kind::Gemma4Unified => ("<|image>", "<image|>"),
        Kind::Qwen2 | Kind::Qwen25 | Kind::Qwen3 => ("<|vision_start|>", "<|vision_end|>"),
        Kind::Pixtral => ("", "[IMG_END]"),
        Kind::Glm => ("<|begin_of_image|>", "<|end_of_image|>"),
        // Most of them always in views.
        Kind::Mlp | Kind::MiniCpm | Kind::Idefics3 | Kind::InternVl | Kind::Llama4 => ("", ""),
    };
    vec![Part::text(before), Part::Rows(n_rows), Part::text(after)]
}

/// An image in views of `n_rows` rows each.
pub(super) fn of_views(rule: &Rule, cut: &Cut, n_rows: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rows = |before: Cow<'static, str>, after: &'static str| {
        parts.extend([Part::Text(before), Part::Rows(n_rows), Part::text(after)]);
    };
    let (across, down) = cut.tiles;
    match rule {
        Rule::Kept { .. } => return vec![Part::Rows(n_rows + cut.n_shown())],
        Rule::Slices { nested } => {
            rows("<image>".into(), "</image>");
            let (begin, end) = if *nested {
                ("<image>", "</image>")
            } else {
                ("<slice>", "</slice>")
            };
            for place in places(across, down) {
                let before = match place {
                    (0, 0) if *nested => "<slice>",
                    (1.., 0) => "\n",
                    _ => "",
                };
                rows(format!("{before}{begin}").into(), end);
            }
            if *nested && across > 0 {
                parts.push(Part::text("</slice>"));
            }
            parts.push(Part::text("\n"));
        }
        Rule::Longest { .. } => {
            for (line, column) in places(across, down) {
                let (line, column, is_last) = (line + 1, column + 1, column + 1 == across);
                let label = format!("<fake_token_around_image><row_{line}_col_{column}>");
                rows(label.into(), if is_last { "\n" } else { "" });
            }
            let gap = if across > 0 { "\n" } else { "" };
            let label = format!("{gap}<fake_token_around_image><global-img>");
            rows(label.into(), "<fake_token_around_image>");
        }
        Rule::Canvas { .. } if cut.whole.is_none() => {
            rows("<|image_start|><|image|>".into(), "<|image_end|>");
        }
        Rule::Canvas { .. } => {
            for place in places(across, down) {
                let before = if place == (0, 0) {
                    "<|image_start|>"
                } else {
                    ""
                };
                let after = match place {
                    (_, column) if column + 1 < across => "<|tile_x_separator|>",
                    _ => "<|tile_y_separator|>",
                };
                rows(before.into(), after);
            }
            rows("<|image|>".into(), "<|image_end|>");
        }
        Rule::Shape { .. } => {
            let n_rows = n_rows * (across * down + 1);
            return vec![
                Part::text("<img>"),
                Part::Rows(n_rows),
                Part::text("</img>\n"),
            ];
        }
    }
    parts
}

/// Line and column of each tile.
fn places(across: usize, down: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..down).flat_map(move |line| (0..across).map(move |column| (line, column)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vision::tiles::Tiles;

    /// What stands in the place of an image of that size, a star for each view.
    fn shown(rule: Rule, side: usize, size: (u32, u32)) -> String {
        let tiles = Tiles {
            rule,
            side,
            patch_size: 14,
        };
        let parts = of_views(&tiles.rule, &tiles.cut(size), 1).into_iter();
        let text = parts.map(|part| match part {
            Part::Text(text) => text.into_owned(),
            Part::Rows(n) => "*".repeat(n),
        });
        text.collect()
    }

    /// By the processors of the published models.
    #[test]
    fn slices_stand_in_marks() {
        let slices = |nested, size| shown(Rule::Slices { nested }, 448, size);
        assert_eq!(slices(false, (448, 448)), "<image>*</image>\n");
        assert_eq!(slices(true, (448, 448)), "<image>*</image>\n");
        let slice = "<slice>*</slice>";
        assert_eq!(
            slices(false, (1152, 896)),
            format!("<image>*</image>{slice}{slice}{slice}\n{slice}{slice}{slice}\n")
        );
        let image = "<image>*</image>";
        assert_eq!(
            slices(true, (1152, 896)),
            format!("{image}<slice>{image}{image}{image}\n{image}{image}{image}</slice>\n")
        );
    }

    #[test]
    fn all_views_of_internvl_stand_together() {
        let (least, most) = (1, 12);
        let views = |size| shown(Rule::Shape { least, most }, 448, size);
        assert_eq!(views((100, 100)), "<img>*</img>\n");
        assert_eq!(views((900, 300)), "<img>****</img>\n");
    }

    #[test]
    fn tiles_of_llama4_are_separated() {
        let tiles = |size| shown(Rule::Canvas { most: 16 }, 336, size);
        assert_eq!(tiles((100, 50)), "<|image_start|><|image|>*<|image_end|>");
        let [x, y] = ["<|tile_x_separator|>", "<|tile_y_separator|>"];
        assert_eq!(
            tiles((640, 640)),
            format!("<|image_start|>*{x}*{y}*{x}*{y}<|image|>*<|image_end|>")
        );
    }

    #[test]
    fn tiles_of_idefics_have_labels() {
        let longest = Some(1024);
        assert_eq!(
            shown(Rule::Longest { longest }, 512, (1024, 600)),
            "<fake_token_around_image><row_1_col_1>*<fake_token_around_image><row_1_col_2>*\n\
             <fake_token_around_image><row_2_col_1>*<fake_token_around_image><row_2_col_2>*\n\
             \n<fake_token_around_image><global-img>*<fake_token_around_image>"
        );
        let alone = "<fake_token_around_image><global-img>*<fake_token_around_image>";
        let longest = Some(512);
        assert_eq!(shown(Rule::Longest { longest }, 512, (1024, 600)), alone);
        let longest = None;
        assert_eq!(shown(Rule::Longest { longest }, 512, (1024, 600)), alone);
    }
}
