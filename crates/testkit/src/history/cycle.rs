//! Cycles between transactions that snapshot isolation forbids.
//!
//! Edges say that one transaction comes before another: it wrote the version that the other replaced or
//! read, or was over before the other began. An anti-dependency (`rw`: one read the version that the other
//! replaced) also orders them, but snapshot isolation allows cycles with two of those in a row (write
//! skew). A cycle without two adjacent ones is forbidden. Such cycles are exactly the cycles of a graph
//! with two copies of each transaction, the second of which is entered by an anti-dependency and left by
//! anything else.

use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// Replaced a version of the other.
    WriteWrite,
    /// Read a version of the other.
    WriteRead,
    /// Began after the other was over.
    RealTime,
    /// Replaced a version that the other read.
    ReadWrite,
}

/// A directed graph over transactions and, beyond them, helper nodes for real time.
#[derive(Debug, Default)]
pub struct Graph {
    edges: Vec<Vec<(usize, Edge)>>,
}

impl Graph {
    pub fn add_node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    pub fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[from].push((to, edge));
        }
    }

    /// A shortest forbidden cycle through some transaction, as (node, edge to the next).
    pub fn forbidden_cycle(&self) -> Option<Vec<(usize, Edge)>> {
        // In the doubled graph, 2n is transaction n entered by anything but an anti-dependency.
        let next = |state: usize| {
            let (node, after_read_write) = (state / 2, state % 2 == 1);
            self.edges[node].iter().filter_map(move |&(to, edge)| match edge {
                Edge::ReadWrite if after_read_write => None,
                Edge::ReadWrite => Some((2 * to + 1, edge)),
                _ => Some((2 * to, edge)),
            })
        };
        let component =
            strong_components(self.edges.len() * 2, |state| next(state).map(|(to, _)| to).collect());
        let mut size = vec![0usize; component.len()];
        component.iter().for_each(|&c| size[c] += 1);
        let start = (0..component.len()).find(|&state| size[component[state]] > 1)?;

        // Back to the start on the shortest way, within its component.
        let mut came_from: Vec<Option<(usize, Edge)>> = vec![None; component.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(state) = queue.pop_front() {
            for (to, edge) in next(state).filter(|&(to, _)| component[to] == component[start]) {
                if came_from[to].is_none() {
                    came_from[to] = Some((state, edge));
                    queue.push_back(to);
                }
            }
        }
        let mut cycle = Vec::new();
        let mut at = start;
        loop {
            let (before, edge) = came_from[at].expect("a component leads back to its start");
            cycle.push((before / 2, edge));
            at = before;
            if at == start {
                break;
            }
        }
        cycle.reverse();
        Some(cycle)
    }
}

/// The name that the literature has for a cycle of these edges.
pub fn name(cycle: &[(usize, Edge)]) -> &'static str {
    let with = |edge| cycle.iter().filter(|(_, e)| *e == edge).count();
    match (with(Edge::ReadWrite), with(Edge::WriteRead), with(Edge::RealTime)) {
        (0, 0, 0) => "G0",
        (0, _, 0) => "G1c",
        (0, _, _) => "G1c-realtime",
        (1, _, 0) => "G-single",
        (1, _, _) => "G-single-realtime",
        _ => "G-nonadjacent",
    }
}

/// Tarjan's algorithm without recursion: the component of each node.
fn strong_components(nodes: usize, next: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let mut index = vec![UNSEEN; nodes];
    let mut low = vec![0; nodes];
    let mut component = vec![UNSEEN; nodes];
    let (mut stack, mut counter, mut components) = (Vec::new(), 0, 0);
    for root in 0..nodes {
        if index[root] != UNSEEN {
            continue;
        }
        let mut open = vec![(root, next(root), 0)];
        (index[root], low[root]) = (counter, counter);
        counter += 1;
        stack.push(root);
        while let Some((node, targets, at)) = open.last_mut() {
            let node = *node;
            if let Some(&to) = targets.get(*at) {
                *at += 1;
                if index[to] == UNSEEN {
                    (index[to], low[to]) = (counter, counter);
                    counter += 1;
                    stack.push(to);
                    open.push((to, next(to), 0));
                } else if component[to] == UNSEEN {
                    low[node] = low[node].min(index[to]);
                }
                continue;
            }
            if low[node] == index[node] {
                while let Some(member) = stack.pop() {
                    component[member] = components;
                    if member == node {
                        break;
                    }
                }
                components += 1;
            }
            open.pop();
            if let Some((parent, _, _)) = open.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;
    use Edge::{ReadWrite, RealTime, WriteRead, WriteWrite};

    fn found(edges: &[(usize, usize, Edge)]) -> Option<&'static str> {
        let mut graph = Graph::default();
        for _ in 0..5 {
            graph.add_node();
        }
        edges.iter().for_each(|&(from, to, edge)| graph.add(from, to, edge));
        graph.forbidden_cycle().map(|cycle| name(&cycle))
    }

    #[test]
    fn exactly_the_cycles_that_snapshot_isolation_forbids_are_found() {
        for (edges, expected) in [
            (&[(0, 1, WriteWrite), (1, 2, WriteRead), (0, 2, ReadWrite)][..], None),
            (&[(0, 1, WriteWrite), (1, 0, WriteWrite)], Some("G0")),
            (&[(0, 1, WriteWrite), (1, 0, WriteRead)], Some("G1c")),
            (&[(0, 1, WriteRead), (1, 2, WriteRead), (2, 0, ReadWrite)], Some("G-single")),
            (&[(0, 1, RealTime), (1, 0, ReadWrite)], Some("G-single-realtime")),
            // Write skew is allowed.
            (&[(0, 1, ReadWrite), (1, 0, ReadWrite)], None),
            (&[(0, 1, ReadWrite), (1, 2, ReadWrite), (2, 0, WriteRead)], None),
            (
                &[(0, 1, ReadWrite), (1, 2, WriteRead), (2, 3, ReadWrite), (3, 0, WriteWrite)],
                Some("G-nonadjacent"),
            ),
        ] {
            assert_eq!(found(edges), expected, "{edges:?}");
        }
    }
}
