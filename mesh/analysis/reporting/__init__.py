"""The findings of the analysis for people and programs: findings, the terminal, the page, differences."""
