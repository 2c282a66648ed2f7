"""How a query becomes an answer: its words, the fusion of the arms, the rows that are shown."""
