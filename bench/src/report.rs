//! Ratios, targets and the table.

use crate::load::Measure;
use crate::workload::Target;

/// One line of the table.
pub struct Row {
    pub name: String,
    /// Kilim, then mongod; ratios are the first over the second.
    pub cells: Vec<String>,
    pub target: String,
    pub reached: Option<bool>,
}

pub const HEADINGS: [&str; 8] = ["workload", "rate", "p50", "p99", "CPU/op", "ops/s", "CPU µs/op", "target"];

pub fn compare(name: String, sides: &[Measure; 2], rounds: &[[f64; 2]], target: Target) -> Row {
    let ratio = |figure: fn(&Measure) -> f64| figure(&sides[0]) / figure(&sides[1]);
    let (rate, cpu) = (ratio(Measure::rate), ratio(Measure::cpu_per_operation));
    let (p50, p99) = (ratio(|m| m.percentile(0.5)), ratio(|m| m.percentile(0.99)));
    // How far single rounds lie apart says how far to believe the ratio.
    let cpu_rounds = rounds.iter().map(|[a, b]| a / b);
    let least = cpu_rounds.clone().fold(f64::INFINITY, f64::min);
    let most = cpu_rounds.fold(0.0, f64::max);
    let pair = |figure: fn(&Measure) -> f64, scale: f64| {
        format!("{} / {}", short(figure(&sides[0]) * scale), short(figure(&sides[1]) * scale))
    };
    let (reached, target) = match target {
        Target::CpuAtMost(limit) => (Some(cpu <= limit), format!("CPU ≤ {limit}")),
        Target::RateAtLeast(limit) => (Some(rate >= limit), format!("rate ≥ {limit}")),
        Target::P99AtMost(limit) => (Some(p99 <= limit), format!("p99 ≤ {limit}")),
        Target::Told => (None, String::new()),
    };
    Row {
        name,
        cells: vec![
            format!("{rate:.2}×"),
            format!("{p50:.2}×"),
            format!("{p99:.2}×"),
            format!("{}× ({}–{})", ratio_text(cpu), ratio_text(least), ratio_text(most)),
            pair(Measure::rate, 1.0),
            pair(Measure::cpu_per_operation, 1e6),
        ],
        target,
        reached,
    }
}

/// A row that is one figure a side instead of a load.
pub fn figure(name: &str, sides: [String; 2], target: &str, reached: Option<bool>) -> Row {
    Row {
        name: name.to_owned(),
        cells: vec![
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            sides.join(" / "),
            String::new(),
        ],
        target: target.to_owned(),
        reached,
    }
}

/// Two digits behind the point, and more where these would be zeros.
fn ratio_text(ratio: f64) -> String {
    match ratio {
        small if small < 0.1 => format!("{small:.4}"),
        other => format!("{other:.2}"),
    }
}

fn short(figure: f64) -> String {
    match figure {
        f if f >= 100.0 => format!("{f:.0}"),
        f if f >= 10.0 => format!("{f:.1}"),
        f => format!("{f:.2}"),
    }
}

pub fn bytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

pub fn print(rows: &[Row], markdown: bool) {
    let mut lines: Vec<Vec<String>> = vec![HEADINGS.iter().map(|h| (*h).to_owned()).collect()];
    for row in rows {
        let verdict = match row.reached {
            Some(true) => format!("{} ok", row.target),
            Some(false) => format!("{} short", row.target),
            None => row.target.clone(),
        };
        let mut line = vec![row.name.clone()];
        line.extend(row.cells.iter().cloned());
        line.push(verdict);
        lines.push(line);
    }
    let widths: Vec<usize> =
        (0..HEADINGS.len()).map(|i| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0)).collect();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        if markdown {
            println!("| {} |", cells.join(" | "));
            if index == 0 {
                println!("|{}|", widths.iter().map(|w| "-".repeat(w + 2)).collect::<Vec<_>>().join("|"));
            }
        } else {
            println!("{}", cells.join("  ").trim_end());
        }
    }
}
