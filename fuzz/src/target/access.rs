//! Documents of users and roles, which a restore may write as it likes: refused or read, and what was read is written so that it
//! is read the same again. Their rights can be asked for.

use kilim_auth::{Action, Gathered, Rights, RoleDocument, UserDocument, gather};

pub fn check(input: &[u8]) {
    let Some(written) = crate::document(input) else { return };
    if let Ok(role) = RoleDocument::from_document(written.as_raw()) {
        let again = RoleDocument::from_document(role.to_document().as_raw());
        assert_eq!(again.as_ref().ok(), Some(&role), "{again:?}");
        // A role may name itself, or others that are not there.
        let own = role.name.clone();
        let gathered = gather(std::slice::from_ref(&own), |name| Ok((*name == own).then(|| role.clone())));
        if let Ok(Gathered { privileges, .. }) = gathered {
            let rights = Rights::new(&privileges);
            let (everywhere, here) =
                (rights.allows_on_database("shop", FIND), rights.allows_on_collection("shop", "a", FIND));
            assert!(here || !everywhere, "who may on a database may on its collections");
        }
    }
    if let Ok(user) = UserDocument::from_document(written.as_raw()) {
        let again = UserDocument::from_document(user.to_document().as_raw());
        assert_eq!(again.as_ref().ok(), Some(&user), "{again:?}");
    }
}

const FIND: Action = Action::named("find");
