//! Tables with aligned columns; on a terminal too narrow for them, a few lines a row.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use crate::output::{one_line, show};

/// Columns narrower than this say nothing.
const NARROWEST: usize = 12;
const GAP: usize = 2;

pub(crate) struct Table {
    heads: Vec<&'static str>,
    /// Whether a column holds numbers, which end under each other.
    numbers: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A head that begins with `#` stands over numbers.
    pub(crate) fn new(heads: &[&'static str]) -> Table {
        Table {
            heads: heads.iter().map(|head| head.trim_start_matches('#')).collect(),
            numbers: heads.iter().map(|head| head.starts_with('#')).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(cells.len(), self.heads.len());
        // A newline in a name would be a row that nobody wrote.
        self.rows.push(cells.iter().map(|cell| one_line(cell).into_owned()).collect());
    }

    /// For standard output as it is.
    pub(crate) fn print(&self) -> io::Result<()> {
        show!("{}", self.render(terminal_columns()))
    }

    /// As text, at most `columns` wide if that is given.
    pub(crate) fn render(&self, columns: Option<usize>) -> String {
        let mut widths: Vec<usize> = self.heads.iter().map(|head| width(head)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(self::width(cell));
            }
        }
        let gaps = GAP * widths.len().saturating_sub(1);
        if let Some(columns) = columns {
            while widths.iter().sum::<usize>() + gaps > columns {
                // The widest column of words gives way; numbers that end early would lie.
                let words = (0..widths.len()).filter(|&at| !self.numbers[at]);
                match words.max_by_key(|&at| widths[at]) {
                    Some(at) if widths[at] > NARROWEST.max(width(self.heads[at])) => widths[at] -= 1,
                    _ => return self.stacked(columns),
                }
            }
        }
        let mut out = String::new();
        let heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let cell = shortened(cell, widths[at]);
                let blanks = " ".repeat(widths[at] - width(&cell));
                let gap = " ".repeat(if at == 0 { 0 } else { GAP });
                match self.numbers[at] {
                    true => write!(line, "{gap}{blanks}{cell}"),
                    false => write!(line, "{gap}{cell}{blanks}"),
                }
                .expect("a string takes all");
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    fn stacked(&self, columns: usize) -> String {
        let names = self.heads.iter().map(|head| width(head)).max().unwrap_or(0);
        let mut out = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "\n" });
            for (head, cell) in self.heads.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
                let cell = shortened(cell, columns.saturating_sub(names + GAP).max(NARROWEST));
                let _ = writeln!(out, "{head}{}{cell}", " ".repeat(names - width(head) + GAP));
            }
        }
        out
    }
}

/// How wide standard output is, if it is a terminal; otherwise nothing is ever cut.
pub(crate) fn terminal_columns() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0).max(20))
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "#WRITES", "FIELDS"]);
        table.row(["customerCard".into(), "1,204".into(), "customer".into()]);
        table.row(["reviewStats".into(), "7".into(), "reviewCount, avgRating, best".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_nothing_is_cut_without_need() {
        let expected = "\
NAME          WRITES  FIELDS
customerCard   1,204  customer
reviewStats        7  reviewCount, avgRating, best
";
        assert_eq!(table().render(None), expected);
        assert_eq!(table().render(Some(100)), expected);
    }

    #[test]
    fn a_name_makes_no_row_of_its_own() {
        let mut table = Table::new(&["NAME", "#N"]);
        table.row(["a\x1b[31m\nfake  9".into(), "1".into()]);
        assert_eq!(table.render(None), "NAME                  N\na\\u001b[31m\\nfake  9  1\n");
    }

    #[test]
    fn a_narrow_terminal_cuts_words_and_then_stacks() {
        let expected = "\
NAME          WRITES  FIELDS
customerCard   1,204  customer
reviewStats        7  reviewCount, a…
";
        assert_eq!(table().render(Some(37)), expected);
        let expected = "\
NAME    customerCard
WRITES  1,204
FIELDS  customer

NAME    reviewStats
WRITES  7
FIELDS  reviewCount…
";
        assert_eq!(table().render(Some(20)), expected);
    }
}
