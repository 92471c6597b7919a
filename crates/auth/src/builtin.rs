//! The built-in roles: recorded from mongod (`builtin_roles.txt`), with Kilim's own actions added (`own_actions.txt`).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::action::{Action, ActionSet};
use crate::name::RoleName;
use crate::privilege::{Privilege, Resource, merge};

const SOURCES: [&str; 2] = [include_str!("builtin_roles.txt"), include_str!("own_actions.txt")];

/// Stands for the role's own database.
const OWN: &str = "<db>";

struct Definition {
    /// Whether every database has the role, or `admin` alone.
    is_everywhere: bool,
    privileges: Vec<Privilege>,
}

/// The privileges of a built-in role; `None` if it is none.
pub fn builtin(role: &RoleName) -> Option<Vec<Privilege>> {
    let definition = table().get(&*role.role)?;
    if !definition.is_everywhere && role.db != "admin" {
        return None;
    }
    let own = |name: &str| match name {
        OWN => role.db.clone(),
        other => other.to_owned(),
    };
    let of_database = |privilege: &Privilege| {
        let resource = match &privilege.resource {
            Resource::Database(db) => Resource::Database(own(db)),
            Resource::Exact(db, collection) => Resource::Exact(own(db), collection.clone()),
            other => other.clone(),
        };
        Privilege { resource, actions: privilege.actions }
    };
    Some(definition.privileges.iter().map(of_database).collect())
}

/// The built-in roles that a database has.
pub fn builtin_names(db: &str) -> Vec<RoleName> {
    let has = |(_, definition): &(&&str, &Definition)| definition.is_everywhere || db == "admin";
    table().iter().filter(has).map(|(name, _)| RoleName::new(name, db)).collect()
}

fn table() -> &'static BTreeMap<&'static str, Definition> {
    static TABLE: OnceLock<BTreeMap<&'static str, Definition>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table: BTreeMap<&str, Definition> = BTreeMap::new();
        let mut current = "";
        let lines = SOURCES.into_iter().flat_map(str::lines);
        for line in lines.filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if let Some(head) = line.strip_prefix("role ") {
                let (name, whose) = head.split_once(' ').expect("a role says where it is");
                let is_everywhere = whose == "every";
                table.entry(name).or_insert(Definition { is_everywhere, privileges: Vec::new() });
                current = name;
                continue;
            }
            let (resource, actions) = line.split_once('|').expect("a privilege has a resource and actions");
            let actions: ActionSet = actions.split_whitespace().map(Action::named).collect();
            let privilege = Privilege { resource: resource_of(resource.trim()), actions };
            let definition = table.get_mut(current).expect("privileges stand below their role");
            merge(&mut definition.privileges, [privilege]);
        }
        table
    })
}

fn resource_of(text: &str) -> Resource {
    match text {
        "any" => Resource::Any,
        "cluster" => Resource::Cluster,
        "buckets" => Resource::Buckets { db: String::new(), collection: String::new() },
        "*" => Resource::Normal,
        _ => match text.split_once('.') {
            Some(("*", collection)) => Resource::Collection(collection.to_owned()),
            Some((db, collection)) => Resource::Exact(db.to_owned(), collection.to_owned()),
            None => Resource::Database(text.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_where_mongod_has_them() {
        assert!(builtin(&RoleName::new("read", "shop")).is_some());
        assert!(builtin(&RoleName::new("root", "shop")).is_none());
        assert!(builtin(&RoleName::new("root", "admin")).is_some());
        let names: Vec<String> = builtin_names("shop").into_iter().map(|name| name.role).collect();
        assert_eq!(names, ["dbAdmin", "dbOwner", "enableSharding", "read", "readWrite", "userAdmin"]);
        assert_eq!(builtin_names("admin").len(), 20);
    }

    #[test]
    fn a_role_of_every_database_is_about_its_own() {
        let privileges = builtin(&RoleName::new("dbAdmin", "shop")).unwrap();
        assert_eq!(privileges[0].resource, Resource::Database("shop".to_owned()));
        assert!(privileges[0].actions.allows(Action::named("pattern")));
        assert_eq!(privileges[1].resource, Resource::Exact("shop".to_owned(), "system.profile".to_owned()));
    }
}
