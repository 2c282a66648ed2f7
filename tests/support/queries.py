"""Texts that are stored and queries that must find them: odd punctuation, identifiers, every script."""

NFD_DATABASE = "\u30c6\u3099\u30fc\u30bf\u30d8\u3099\u30fc\u30b9 in NFD"

# Queries in which a query language might see operators.
ODD_QUERIES = [
    ("the deploy plan is blue green", "what's the deploy plan?"),
    ("a plan (draft) for the move", "plan (draft)"),
    ("they say hi to all", 'say "hi'),
    ("the parser is in C++", "C++"),
    ("the client is in C#", "C#"),
    ("rust is memory:safe", "memory:safe"),
    ("foo is a placeholder", "foo AND"),
    ("near the sea", "NEAR("),
    ("foo starts it", "^foo"),
    ("x:foo is a column", "{x}:foo"),
    ("foo bar", 'foo" OR "bar'),
    ("foo bar", "foo* -bar"),
    ("foo bar", "content:foo"),
    ("it costs €5", "€5"),
    ("shipped 🎉", "🎉"),
    ("call parseConfig first", "parseConfig"),
    ("call parseConfig first", "config"),
    ("see src/app/main.py there", "main.py"),
    ("see src/app/main.py there", "src/app/main.py"),
    ("needs v1.2.3 or later", "v1.2.3"),
    ("set max_retry_count to 5", "max_retry_count"),
    ("set max_retry_count to 5", "retry"),
    ("deploy uses blue green", "green deploy"),
    ("the cafe\u0301 is open", "cafe"),
    ("the café is open", "CAFÉ"),
]

SCRIPTS = [
    ("今日は東京で会議をした", "会議"),
    ("今日は東京で会議をした", "東"),
    ("今日は東京で会議をした", "た"),
    ("这只股票要止损", "止损"),
    ("山上有雾凇", "雾凇"),
    ("报销流程说明文档", "公司的报销流程是什么"),
    ("デプロイの手順はこの文書にある", "デプロイ手順を教えて"),
    ("배포 절차는 문서에 있다", "배포 절차를 알려줘"),
    ("ขั้นตอนการติดตั้งอยู่ในเอกสาร", "การติดตั้ง"),
    (NFD_DATABASE, "データベース"),
    ("ﾃﾞｰﾀﾍﾞｰｽ移行", "データベース"),
    ("Ｃｌｏｕｄｆｌａｒｅ設定", "Cloudflare"),
    ("ｶﾀｶﾅ", "カタカナ"),
    ("来週の会議は予定どおり", "会議 予定"),
    ("佐々木さんと代々木で打合せ", "佐々木 会議"),
    ("佐々木さんと代々木で打合せ", "代々木 checklist"),
    ("一ヶ月の〆切", "〆切"),
    ("𠮷野家で会う", "𠮷野家"),
    ("Москва слезам не верит", "МОСКВА"),
]
