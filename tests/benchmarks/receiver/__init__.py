"""How fast the receiver of delivery reports is, beside a bare route and one that commits each report by itself."""
