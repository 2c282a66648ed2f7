"""Ten facts, each with a paraphrase that shares no telling word with it, and a word of its own."""

FACTS = (
    ("The staging database is called harbour.", "What name does our test data store have?", "harbour"),
    ("Deploys go out on Friday mornings.", "When do we ship releases?", "Friday"),
    ("Ann is allergic to peanuts.", "Which food makes a colleague ill?", "peanuts"),
    ("The office moved to Lisbon last year.", "In what city do we work now?", "Lisbon"),
    ("Invoices are paid within thirty days.", "How long until a bill is settled?", "Invoices"),
    ("Use tabs, not spaces, in the Go code.", "How should source files be indented?", "tabs"),
    ("The login bug was caused by an expired certificate.", "Why could nobody sign in?", "certificate"),
    ("Backups are copied to tape every night.", "How is data archived in the evening?", "tape"),
    ("Our largest customer is a shipping company.", "Which client buys the most from us?", "shipping"),
    ("The cat of the office is named Turing.", "What is our pet called?", "Turing"),
)
